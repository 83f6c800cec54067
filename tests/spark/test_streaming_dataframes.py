"""Jobs that read streaming DataFrames: each row once although a TaskManager or the driver is killed; back pressure."""

from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from testkit.waiting import wait_until
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.dataframe_kills import LOCAL, Victim, kill_drawn
from tests.spark.processes import new_mark
from tests.spark.programs import Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FILE_COUNT, ROWS_PER_FILE = 12, 100
PROGRAM = """
import os, pathlib, signal
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

here = pathlib.Path.cwd()
spark = spark_session()
for index in range(12):
    (here / "in").mkdir(exist_ok=True)
    lines = "".join(f"{index * 100 + n}\\n" for n in range(100))
    (here / "in" / f"{index:02d}.csv").write_text(lines)

def fatal_once(row):
    if row.id == 650 and not (here / "killed").exists():
        (here / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return (row.id % 7, row.id)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 2).csv(str(here / "in"))
rows = env.from_dataframe(files, trigger={"availableNow": True})
pair = Types.ROW_NAMED(["key", "id"], [Types.LONG(), Types.LONG()])
pairs = rows.map(fatal_once, output_type=pair).key_by(lambda row: row.key)
pairs.map(lambda row: (row.key, row.id), output_type=pair).sink_to(DataFrameSink("out"))
env.execute("files")
"""
OPTIONS = (
    "-D", "execution.checkpointing.interval=300 ms",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


def test_each_row_of_a_streaming_dataframe_comes_once_although_a_task_manager_is_killed(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[4]", *OPTIONS)
    started.append(program)
    assert program.wait(240) == 0, program.report()
    assert (tmp_path / "killed").exists()
    found = [row for rows in rows_of_parquet(tmp_path / "out").values() for row in rows]
    expected = [(number % 7, number) for number in range(FILE_COUNT * ROWS_PER_FILE)]
    compare_output(expected, found).check()
    program.assert_nothing_is_left()


PREVIEWED = """
import pathlib
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from headrace.spark.session import spark_session

here = pathlib.Path.cwd()
(here / "in").mkdir()
for index in range(6):
    lines = "".join(f"{number}\\n" for number in range(index * 100, index * 100 + 100))
    (here / "in" / f"{index}.csv").write_text(lines)
files = spark_session().readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
files = files.csv(str(here / "in"))
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
rows = env.from_dataframe(files, trigger={"availableNow": True}, checkpoint_location="query")
print("PREVIEW", [len(rows.preview(500, timeout_s=100)) for _ in range(2)])
print("LOCATIONS", [path.name for path in here.glob("query*")])
with rows.execute_and_collect() as found:
    print("ALL", sorted(row.id for row in found) == list(range(600)))
print("LOCATIONS", [path.name for path in here.glob("query*")])

env.set_runtime_mode(RuntimeExecutionMode.BATCH)
# It ends after hours.
slow = DataGeneratorSource(lambda n: n, 1_000_000, Types.LONG(), rows_per_second=50)
print("BATCH", len(env.from_source(slow, WatermarkStrategy.no_watermarks(), "slow").preview(3, timeout_s=100)))
"""


def test_a_preview_leaves_the_query_of_the_program_as_it_is_and_shows_rows_of_batch_mode_early(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PREVIEWED, "--master", "local[4]", *OPTIONS)
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = [line.strip() for line in program.out]
    expected = ["PREVIEW [500, 500]", "LOCATIONS []", "ALL True", "LOCATIONS ['query']", "BATCH 3"]
    assert [line for line in told if line in expected] == expected, program.report()
    program.assert_nothing_is_left()


STOPPED = """
import pathlib, time
from headrace.common import Configuration, Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session
from pyspark.sql import functions as F

here = pathlib.Path.cwd()
(here / "in").mkdir()
for index in range(6):
    lines = "".join(f"{number},2026-01-01 00:{index:02d}:00\\n" for number in range(index * 100, index * 100 + 100))
    (here / "in" / f"{index}.csv").write_text(lines)
files = spark_session().readStream.schema("id bigint, at timestamp").option("maxFilesPerTrigger", 1)
files = files.csv(str(here / "in")).withWatermark("at", "10 seconds").withColumn("draw", F.rand())

def slowly(row):
    if row.id == 250:
        (here / "middle").touch()
    if not (here / "stopped").exists():
        time.sleep(0.004)
    return (row.id,)

def program(configuration, trigger):
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    rows = env.from_dataframe(files, trigger=trigger)
    ids = rows.map(slowly, output_type=Types.ROW_NAMED(["id"], [Types.LONG()]))
    ids.sink_to(DataFrameSink("out", mode="append"))
    return env

client = program(Configuration(), None).execute_async("first")
while not (here / "middle").exists():
    time.sleep(0.02)
path = client.stop_with_savepoint(False, str(here / "savepoints")).result()
(here / "stopped").touch()
again = Configuration()
again.set_string("execution.state-recovery.path", path)
program(again, {"availableNow": True}).execute("second")
"""


def test_a_job_that_was_stopped_in_a_micro_batch_goes_on_behind_it(
    tmp_path: Path, started: list[Program]
) -> None:
    options = ("-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}", *OPTIONS)
    program = headrace_run(tmp_path, STOPPED, "--master", "local[4]", *options)
    started.append(program)
    assert program.wait(240) == 0, program.report()
    found = [row for rows in rows_of_parquet(tmp_path / "out").values() for row in rows]
    compare_output([(number,) for number in range(600)], found).check()
    # What Spark draws by lot is copied until its micro-batch is done.
    assert list((tmp_path / "checkpoints" / "dataframes").glob("*-rows")) == []
    assert "ERROR" not in "".join(program.err), program.report()


BACK_PRESSURE = """
import os, pathlib, time
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

here = pathlib.Path.cwd()
(here / "in").mkdir(exist_ok=True)
for index in range(8):
    lines = "".join(f"{index * 50 + n}\\n" for n in range(50))
    file = here / "in" / f"{index}.csv"
    if not file.exists():
        file.write_text(lines)
        # Spark takes files in the order of their age.
        os.utime(file, (1_000_000_000 + index, 1_000_000_000 + index))
files = spark_session().readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
rows = env.from_dataframe(files.csv(str(here / "in")), trigger={"availableNow": True}, checkpoint_location="query")

def slowly(row):
    # What the query had begun when this row was worked on.
    begun = [one for one in (here / "query" / "offsets").iterdir() if one.name.isdecimal()]
    time.sleep(0.01)
    return (row.id, len(begun))

pair = Types.ROW_NAMED(["id", "begun"], [Types.LONG(), Types.LONG()])
rows.map(slowly, output_type=pair).sink_to(DataFrameSink("out", mode="append"))
env.execute("files")
"""


@pytest.mark.long
def test_a_slow_job_holds_the_query_back_and_a_killed_driver_s_successor_goes_on(
    tmp_path: Path, started: list[Program]
) -> None:
    options = ("-D", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}", *OPTIONS)
    dying = headrace_run(tmp_path, BACK_PRESSURE, "--master", "local[3]", *options)
    started.append(dying)
    commits = tmp_path / "query" / "commits"
    wait_until(lambda: (commits / "2").exists(), 200, "three micro-batches")
    dying.process.kill()
    dying.end()
    assert not (commits / "7").exists()
    _, place = newest_checkpoint(tmp_path)
    again = headrace_run(
        tmp_path, BACK_PRESSURE, "--master", "local[3]", *options, "-s", str(place)
    )
    started.append(again)
    assert again.wait(250) == 0, again.report()
    found = [row for rows in rows_of_parquet(tmp_path / "out").values() for row in rows]
    compare_output(range(400), [number for number, _ in found]).check()
    # One micro-batch, of one file, is in flight: the next one is begun when a checkpoint has it. Spark puts two files
    # into one where it died after it had noted a file and before it had noted the micro-batch.
    assert {number // 50 + 1 - begun for number, begun in found} <= {0, 1}


LIVE = """
import socketserver, threading
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

class Talker(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"".join(b"line %d\\n" % n for n in range(40)))
        self.request.recv(1)

server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talker)
threading.Thread(target=server.serve_forever, daemon=True).start()
spark = spark_session()
stream = spark.readStream
sources = {
    "RATE": stream.format("rate").option("rowsPerSecond", 100).load().select("value"),
    "SOCKET": stream.format("socket").options(host="127.0.0.1", port=server.server_address[1]).load(),
    "MICRO": stream.format("rate-micro-batch").option("rowsPerBatch", 30).load().select("value"),
}
for name, df in sources.items():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    values = [row[0] for row in env.from_dataframe(df).execute_and_collect(limit=40)]
    print(name, len(set(values)), sorted(values, key=lambda value: (len(str(value)), value)))
"""


def test_rate_and_socket_sources_come_through(tmp_path: Path, started: list[Program]) -> None:
    program = headrace_run(tmp_path, LIVE, "--master", "local[4]")
    started.append(program)
    assert program.wait(280) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    # Of what has no end, the first rows are those of whichever partition comes first: no row comes twice.
    assert told["RATE"].startswith("40 [") and told["MICRO"].startswith("40 ["), program.report()
    assert told["SOCKET"] == f"40 {[f'line {n}' for n in range(40)]}", program.report()


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("cluster", "victims"),
    [
        (LOCAL, (Victim.PUSHER, Victim.DRIVER)),
        (("--master", "local-cluster[2,3,1024]"), (Victim.EXECUTOR,)),
    ],
    ids=["local", "local-cluster"],
)
@pytest.mark.long
def test_each_row_comes_once_although_workers_that_push_rows_and_drivers_are_killed(
    tmp_path: Path, started: list[Program], cluster: tuple[str, ...], victims: tuple[Victim, ...]
) -> None:
    outcome = kill_drawn(tmp_path, started, 1, victims, cluster)
    assert outcome.mistakes == (), outcome
    assert outcome.kill_count == len(victims)


@pytest.mark.repetition("the same on a local-cluster")
@pytest.mark.timeout(500)
def test_each_row_comes_once_on_a_standalone_cluster(
    tmp_path: Path, started: list[Program]
) -> None:
    standalone = StandaloneCluster(tmp_path / "spark", new_mark(), cores_per_worker=3)
    try:
        outcome = kill_drawn(tmp_path, started, 1, (), standalone.options)
        assert outcome.mistakes == (), outcome
    finally:
        standalone.end()


WATERMARKED = """
import os, pathlib
from headrace.common import Time, Types
from headrace.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.spark.session import spark_session
from pyspark.sql import functions as F

here, spark = pathlib.Path.cwd(), spark_session()
(here / "in").mkdir()
minutes = [
    ["00:10", "00:50"],
    ["01:05"],  # the watermark comes to 00:55
    ["01:15", "00:59"],  # a micro-batch has one watermark, so the second row is not late; then it comes to 01:05
    ["01:20"],  # Spark drops by the watermark of one micro-batch before
    ["00:30", "02:15"],  # the first row is late
    ["00:40"],
]
for index, times in enumerate(minutes):
    file = here / "in" / f"{index}.csv"
    file.write_text("".join(f"2026-01-01 00:{time}\\n" for time in times))
    # Spark takes files in the order of their age.
    os.utime(file, (1_000_000_000 + index, 1_000_000_000 + index))
files = spark.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).csv(str(here / "in"))
times = files.withWatermark("at", "10 seconds")

spark.conf.set("spark.sql.shuffle.partitions", 1)
counts = times.groupBy(F.window("at", "1 minute")).count().selectExpr("minute(window.start) AS minute", "count")
query = counts.writeStream.format("memory").queryName("counts").outputMode("append")
query.trigger(availableNow=True).start().awaitTermination()
print("SPARK", sorted(tuple(row) for row in spark.table("counts").collect()))


class Count(ProcessWindowFunction):
    def process(self, key, context, rows):
        yield "window", context.window().start // 60_000 % 60, len(list(rows))


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.enable_checkpointing(200)
rows = env.from_dataframe(times)
tag = OutputTag("late", rows.get_type())
windows = rows.key_by(lambda row: 0).window(TumblingEventTimeWindows.of(Time.minutes(1)))
result = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
fired = windows.side_output_late_data(tag).process(Count(), result)
late = fired.get_side_output(tag).map(lambda row: ("late", row["at"].minute, row["at"].second), result)
# The query has no end, so nothing but the watermark fires windows: without one the program waits for ever.
print("HEADRACE", sorted(fired.union(late).execute_and_collect(limit=4)))
"""


def test_windows_fire_and_rows_are_late_by_the_watermark_of_the_dataframe(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, WATERMARKED, "--master", "local[3]")
    started.append(program)
    assert program.wait(200) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    # Structured Streaming counts the same rows, and says nothing of those that it drops.
    assert told["SPARK"] == "[(0, 3), (1, 3)]", program.report()
    late = [("late", 0, 30), ("late", 0, 40)]
    assert told["HEADRACE"] == str([*late, ("window", 0, 3), ("window", 1, 3)]), program.report()
