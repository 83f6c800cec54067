import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.flink.util.ExceptionUtils;

/**
 * The job of benchmarks/keyed_latency for Flink, in a JVM with two TaskManagers of one slot each, which talk over TCP.
 *
 * <p>Asked for one turn after another as serving.py says.
 */
public final class KeyedLatency {
    private static final TypeInformation<Tuple2<Long, Long>> RECORD =
            Types.TUPLE(Types.LONG, Types.LONG);
    private static final long TICK_NS = 1_000_000;

    /** Of the turn that runs: what the subtasks of the stopwatch saw. All of them are in this JVM. */
    private static final List<Seen> SEEN = new CopyOnWriteArrayList<>();

    public static void main(String[] arguments) throws Exception {
        Path scratch = Path.of(arguments[0]);
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", scratch.toUri().toString());
        settings.setString("restart-strategy.type", "none");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("rest.bind-port", "0");
        settings.setString("rest.address", "localhost");
        settings.setString("taskmanager.memory.managed.size", "64m");
        settings.setString("taskmanager.memory.network.min", "64m");
        settings.setString("taskmanager.memory.network.max", "64m");
        MiniClusterConfiguration.Builder builder =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(settings)
                        .setNumTaskManagers(2)
                        .setNumSlotsPerTaskManager(1);
        try (MiniCluster cluster = new MiniCluster(builder.build())) {
            cluster.start();
            say("ready");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                try {
                    run(cluster, settings, words(line));
                    say("done");
                } catch (Exception error) {
                    Throwable cause = ExceptionUtils.stripExecutionException(error);
                    say(cause.toString().replace('\n', ' '));
                }
            }
        }
    }

    private static void run(MiniCluster cluster, Configuration settings, Map<String, String> asked)
            throws Exception {
        int parallelism = Integer.parseInt(asked.get("parallelism"));
        double rate = Double.parseDouble(asked.get("rate"));
        double seconds = Double.parseDouble(asked.get("seconds"));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(parallelism);
        environment.setBufferTimeout(Long.parseLong(asked.get("buffer_timeout_ms")));
        environment.enableCheckpointing(Long.parseLong(asked.get("checkpoint_interval_ms")));
        SEEN.clear();
        environment
                .fromSource(
                        new NumberSequenceSource(0, (long) (rate * seconds) - 1),
                        WatermarkStrategy.noWatermarks(),
                        "numbers")
                .map(new Schedule((long) (1e9 * parallelism / rate), Long.parseLong(asked.get("keys"))))
                .returns(RECORD)
                .keyBy(record -> record.f0, Types.LONG)
                .process(new Count())
                .returns(RECORD)
                .flatMap(new Stopwatch())
                .returns(Types.LONG)
                .sinkTo(new DiscardingSink<>());
        cluster.executeJobBlocking(environment.getStreamGraph().getJobGraph());
        write(Path.of(asked.get("out")), Double.parseDouble(asked.get("warm_up_seconds")));
    }

    private static Map<String, String> words(String line) {
        Map<String, String> found = new HashMap<>();
        for (String word : line.trim().split(" ")) {
            int at = word.indexOf('=');
            found.put(word.substring(0, at), word.substring(at + 1));
        }
        return found;
    }

    private static void say(String what) {
        System.out.println("latency: " + what);
        System.out.flush();
    }

    private static void write(Path out, double warmUpSeconds) throws Exception {
        long begin = Long.MAX_VALUE;
        int count = 0;
        for (Seen seen : SEEN) {
            for (int i = 0; i < seen.count; i++) {
                begin = Math.min(begin, seen.due[i]);
            }
            count += seen.count;
        }
        begin += (long) (warmUpSeconds * 1e9);
        ByteBuffer bytes = ByteBuffer.allocate(8 * count).order(ByteOrder.nativeOrder());
        for (Seen seen : SEEN) {
            for (int i = 0; i < seen.count; i++) {
                if (seen.due[i] >= begin) {
                    bytes.putLong(seen.latency[i] / 1000);
                }
            }
        }
        Files.write(out, Arrays.copyOf(bytes.array(), bytes.position()));
    }

    private static long nowNs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000 + now.getNano();
    }

    /** Passes each number on when it is due, stamped with that moment; looks at the clock every millisecond. */
    private static final class Schedule extends RichMapFunction<Long, Tuple2<Long, Long>> {
        private final long intervalNs;
        private final long keyCount;
        private transient long startNs;
        private transient long first;
        private transient long now;

        private Schedule(long intervalNs, long keyCount) {
            this.intervalNs = intervalNs;
            this.keyCount = keyCount;
        }

        @Override
        public Tuple2<Long, Long> map(Long number) {
            if (startNs == 0) {
                startNs = nowNs();
                first = number;
            }
            long due = startNs + (number - first) * intervalNs;
            while (due > now) {
                now = nowNs();
                if (due > now) {
                    LockSupport.parkNanos(TICK_NS);
                }
            }
            return Tuple2.of(number % keyCount, due);
        }
    }

    /** Counts the records of each key in value state, and hands each on. */
    private static final class Count
            extends KeyedProcessFunction<Long, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(
                Tuple2<Long, Long> record, Context context, Collector<Tuple2<Long, Long>> out)
                throws Exception {
            Long before = count.value();
            count.update(before == null ? 1 : before + 1);
            out.collect(record);
        }
    }

    /** What one subtask saw: the moment at which each record was due, and how late it came. */
    private static final class Seen {
        private long[] due = new long[1 << 16];
        private long[] latency = new long[1 << 16];
        private int count;

        private void add(long dueNs, long latencyNs) {
            if (count == due.length) {
                due = Arrays.copyOf(due, 2 * count);
                latency = Arrays.copyOf(latency, 2 * count);
            }
            due[count] = dueNs;
            latency[count++] = latencyNs;
        }
    }

    /** The sink: reads the clock for each record. */
    private static final class Stopwatch extends RichFlatMapFunction<Tuple2<Long, Long>, Long> {
        private transient Seen seen;

        @Override
        public void open(OpenContext context) {
            seen = new Seen();
            SEEN.add(seen);
        }

        @Override
        public void flatMap(Tuple2<Long, Long> record, Collector<Long> out) {
            seen.add(record.f1, nowNs() - record.f1);
        }
    }
}
