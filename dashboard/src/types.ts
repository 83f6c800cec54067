/** Answers of the REST routes: the fields that the dashboard reads, under the names that they have in JSON. */

export type JobStatus =
  | "INITIALIZING"
  | "CREATED"
  | "RUNNING"
  | "FAILING"
  | "FAILED"
  | "CANCELLING"
  | "CANCELED"
  | "FINISHED"
  | "RESTARTING"
  | "SUSPENDED"
  | "RECONCILING";

export type TaskState =
  | "CREATED"
  | "SCHEDULED"
  | "DEPLOYING"
  | "INITIALIZING"
  | "RUNNING"
  | "FINISHED"
  | "CANCELING"
  | "CANCELED"
  | "FAILED"
  | "RECONCILING";

export const TASK_STATES: readonly TaskState[] = [
  "CREATED",
  "SCHEDULED",
  "DEPLOYING",
  "INITIALIZING",
  "RUNNING",
  "FINISHED",
  "CANCELING",
  "CANCELED",
  "FAILED",
  "RECONCILING",
];

/** States in which this cluster is done with a job; a SUSPENDED one may go on under another driver. */
export const TERMINAL: readonly JobStatus[] = ["FAILED", "CANCELED", "FINISHED", "SUSPENDED"];

/** A number, or the text "NaN" where nothing is known yet. */
export type MaybeNumber = number | "NaN";

export interface DashboardConfiguration {
  "refresh-interval": number;
  "timezone-name": string;
  "timezone-offset": number;
  "flink-version": string;
  "flink-revision": string;
  features: {
    "web-submit": boolean;
    "web-cancel": boolean;
    "web-rescale": boolean;
    "web-history": boolean;
    "web-spark": boolean;
  };
}

export interface ClusterOverview {
  taskmanagers: number;
  "slots-total": number;
  "slots-available": number;
  "jobs-running": number;
  "jobs-finished": number;
  "jobs-cancelled": number;
  "jobs-failed": number;
  /** Not there where there is none. */
  "taskmanagers-decommissioned"?: number;
  "flink-version": string;
  "flink-commit": string;
}

export interface JobDetails {
  jid: string;
  name: string;
  jobType?: string;
  schedulerType?: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  state: JobStatus;
  "last-modification": number;
  tasks: Record<string, number>;
}

export interface IOMetrics {
  "read-bytes": number;
  "write-bytes": number;
  "read-records": number;
  "write-records": number;
  "accumulated-backpressured-time": number;
  "accumulated-idle-time": number;
  "accumulated-busy-time": MaybeNumber;
}

export interface JobVertex {
  id: string;
  name: string;
  maxParallelism: number;
  parallelism: number;
  status: TaskState;
  "start-time": number;
  "end-time": number;
  duration: number;
  tasks: Partial<Record<TaskState, number>>;
  metrics: IOMetrics;
}

export interface PlanInput {
  id: string;
  num: number;
  exchange: string;
  ship_strategy: string;
}

export interface PlanNode {
  id: string;
  parallelism: number;
  description: string;
  inputs?: PlanInput[];
}

export interface Plan {
  jid: string;
  name: string;
  type: string;
  nodes: PlanNode[];
}

export interface Job {
  jid: string;
  name: string;
  state: JobStatus;
  "job-type"?: string;
  schedulerType?: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  maxParallelism: number;
  now: number;
  timestamps: Partial<Record<JobStatus, number>>;
  vertices: JobVertex[];
  "status-counts": Partial<Record<TaskState, number>>;
  plan: Plan;
}

export interface JobConfiguration {
  jid: string;
  name: string;
  "execution-config": {
    "restart-strategy": string;
    "job-parallelism": number;
    "object-reuse-mode": boolean;
    "user-config": Record<string, string>;
  };
  /** All settings that hold for the job, secrets masked. */
  settings: Record<string, string>;
}

export interface ExceptionEntry {
  exceptionName: string;
  stacktrace: string;
  timestamp: number;
  failureLabels?: Record<string, string>;
  taskName?: string;
  endpoint?: string;
  taskManagerId?: string;
  concurrentExceptions?: ExceptionEntry[];
}

export interface JobExceptions {
  exceptionHistory: { entries: ExceptionEntry[]; truncated: boolean };
}

export interface Accumulator {
  name: string;
  type: string;
  value: string;
}

export interface JobAccumulators {
  "user-task-accumulators": Accumulator[];
}

export interface Attempt {
  subtask: number;
  status: TaskState;
  attempt: number;
  endpoint: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  metrics: IOMetrics;
  "taskmanager-id": string;
  "status-duration"?: Partial<Record<TaskState, number>>;
  "other-concurrent-attempts"?: Attempt[];
}

export interface VertexDetails {
  id: string;
  name: string;
  parallelism: number;
  maxParallelism: number;
  now: number;
  subtasks: Attempt[];
}

export interface SubtaskTimes {
  id: string;
  name: string;
  now: number;
  subtasks: { subtask: number; endpoint: string; duration: number; timestamps: Partial<Record<TaskState, number>> }[];
}

export interface SubtaskBackPressure {
  subtask: number;
  backpressureLevel: "ok" | "low" | "high";
  ratio: number;
  idleRatio: number;
  busyRatio: MaybeNumber;
}

export interface BackPressure {
  status: string;
  backpressureLevel?: "ok" | "low" | "high";
  "end-timestamp"?: number;
  subtasks?: SubtaskBackPressure[];
}

export interface MetricValue {
  id: string;
  value?: string;
}

export interface AggregatedMetric {
  id: string;
  min?: MaybeNumber;
  max?: MaybeNumber;
  avg?: MaybeNumber;
  sum?: MaybeNumber;
  skew?: MaybeNumber;
}

/** Points of one vertex, one for each timestamp; null where nothing was known. */
/** Event time of a running subtask; watermarks are null before the first. Of sources: milliseconds and records. */
export interface SubtaskEventTime {
  vertex: string;
  subtask: number;
  "start-time": number;
  "input-watermark": number | null;
  "output-watermark": number | null;
  "idle-time": number | null;
  "records-read": number | null;
  splits: readonly { id: string; watermark: number | null }[];
}

export interface JobWatermarks {
  jid: string;
  now: number;
  subtasks: readonly SubtaskEventTime[];
}

export interface VertexMetricsHistory {
  id: string;
  name: string;
  "records-in-per-second": readonly (number | null)[];
  "records-out-per-second": readonly (number | null)[];
  busy: readonly (number | null)[];
  "back-pressured": readonly (number | null)[];
  "watermark-lag": readonly (number | null)[];
}

export interface MetricsHistory {
  jid: string;
  /** Milliseconds between two points, at least. */
  interval: number;
  timestamps: readonly number[];
  vertices: readonly VertexMetricsHistory[];
}

export interface FlameNode {
  name: string;
  value: number;
  children: FlameNode[];
}

export interface FlameGraphAnswer {
  endTimestamp: number;
  data?: FlameNode;
}

export type FlameGraphType = "FULL" | "ON_CPU" | "OFF_CPU";

export interface Stats {
  min: number;
  max: number;
  avg: number;
  p50?: MaybeNumber;
  p90?: MaybeNumber;
  p95?: MaybeNumber;
  p99?: MaybeNumber;
  p999?: MaybeNumber;
}

export interface VertexCheckpoint {
  id: number;
  status: string;
  latest_ack_timestamp: number;
  checkpointed_size: number;
  state_size: number;
  end_to_end_duration: number;
  num_subtasks: number;
  num_acknowledged_subtasks: number;
}

export type SavepointFormat = "CANONICAL" | "NATIVE";

export interface Checkpoint {
  className: "in_progress" | "completed" | "failed";
  id: number;
  status: "IN_PROGRESS" | "COMPLETED" | "FAILED";
  is_savepoint: boolean;
  /** Null of checkpoints. */
  savepointFormat: SavepointFormat | null;
  trigger_timestamp: number;
  latest_ack_timestamp: number;
  checkpointed_size: number;
  state_size: number;
  end_to_end_duration: number;
  processed_data: number;
  persisted_data: number;
  num_subtasks: number;
  num_acknowledged_subtasks: number;
  checkpoint_type: string;
  tasks: Record<string, VertexCheckpoint>;
  external_path?: string;
  discarded?: boolean;
  failure_timestamp?: number;
  failure_message?: string;
}

export interface CheckpointSummary {
  checkpointed_size: Stats;
  state_size: Stats;
  end_to_end_duration: Stats;
  processed_data: Stats;
  persisted_data: Stats;
}

export interface CheckpointingStatistics {
  counts: { restored: number; total: number; in_progress: number; completed: number; failed: number };
  summary: CheckpointSummary;
  latest: {
    completed: Checkpoint | null;
    savepoint: Checkpoint | null;
    failed: Checkpoint | null;
    restored: { id: number; restore_timestamp: number; is_savepoint: boolean; external_path: string } | null;
  };
  history: Checkpoint[];
}

export interface CompletedSubtaskCheckpoint {
  className: "completed";
  index: number;
  status: string;
  ack_timestamp: number;
  end_to_end_duration: number;
  checkpointed_size: number;
  state_size: number;
  checkpoint: { sync: number; async: number };
  alignment: { buffered: number; processed: number; persisted: number; duration: number };
  start_delay: number;
  unaligned_checkpoint?: boolean;
  aborted?: boolean;
}

export interface PendingSubtaskCheckpoint {
  className: "pending";
  index: number;
  status: string;
}

export type SubtaskCheckpoint = CompletedSubtaskCheckpoint | PendingSubtaskCheckpoint;

export interface VertexCheckpointDetails {
  id: number;
  status: string;
  summary?: {
    checkpoint_duration: { sync: Stats; async: Stats };
    alignment: { buffered: Stats; processed: Stats; persisted: Stats; duration: Stats };
    start_delay: Stats;
  };
  subtasks: SubtaskCheckpoint[];
}

export interface CheckpointConfiguration {
  mode: string;
  interval: number;
  timeout: number;
  min_pause: number;
  max_concurrent: number;
  externalization: { enabled: boolean; delete_on_cancellation: boolean };
  state_backend: string;
  checkpoint_storage: string;
  unaligned_checkpoints: boolean;
  tolerable_failed_checkpoints: number;
  aligned_checkpoint_timeout: number;
  checkpoints_after_tasks_finish: boolean;
}

export interface Resource {
  cpuCores: number;
  taskHeapMemory: number;
  taskOffHeapMemory: number;
  managedMemory: number;
  networkMemory: number;
}

export interface MemoryConfiguration {
  frameworkHeap: number | null;
  taskHeap: number | null;
  frameworkOffHeap: number | null;
  taskOffHeap: number | null;
  networkMemory: number | null;
  managedMemory: number | null;
  jvmMetaspace: number | null;
  jvmOverhead: number | null;
  totalFlinkMemory: number | null;
  totalProcessMemory: number | null;
}

export interface TaskManager {
  id: string;
  path: string;
  dataPort: number;
  timeSinceLastHeartbeat: number;
  slotsNumber: number;
  freeSlots: number;
  totalResource: Resource;
  freeResource: Resource;
  hardware: { cpuCores: number; physicalMemory: number; freeMemory: number; managedMemory: number };
  memoryConfiguration: MemoryConfiguration;
  blocked?: boolean;
  /** Not there where the TaskManager answers, or nobody watches its lock; in milliseconds. */
  heldInterpreterLock?: { duration: number; function: string };
  /** Why the host takes it away soon; not there where it stays. */
  decommissioned?: string;
}

export interface TaskManagerDetails extends TaskManager {
  allocatedSlots: { jobId: string; resource: Resource; assignedTasks: number }[];
  metrics: {
    heapUsed: number;
    heapCommitted: number;
    heapMax: number;
    nettyShuffleMemoryUsed: number;
    nettyShuffleMemoryTotal: number;
    garbageCollectors: { name: string; count: number; time: number }[];
  };
}

export interface LogFile {
  name: string;
  size: number;
  mtime?: number;
}

/** Kinds of profiles that a page offers; the server knows two more, one that is CPU and one that it cannot take. */
export const PROFILING_MODES = ["CPU", "WALL", "ALLOC"] as const;
export type ProfilingMode = (typeof PROFILING_MODES)[number];

/** A profile of a process; `duration` is in seconds. */
export interface Profiling {
  status: "RUNNING" | "FINISHED" | "FAILED";
  mode: string;
  triggerTime: number;
  finishedTime: number | null;
  duration: number;
  message: string | null;
  outputFile: string | null;
}

export interface ThreadInfo {
  threadName: string;
  stringifiedThreadInfo: string;
}

export interface Environment {
  jvm: { version: string; arch: string; options: string[] };
  classpath: string[];
}

export interface KeyValue {
  key: string;
  value: string;
}

/** A value of a row as JSON has it: whole numbers that would be rounded, bytes and times are texts. */
export type JsonValue = string | number | boolean | null | JsonValue[] | { [name: string]: JsonValue };

export interface StateSnapshot {
  id: number;
  kind: "checkpoint" | "savepoint" | "restored";
  /** Null of checkpoints. */
  "savepoint-format": SavepointFormat | null;
  timestamp: number;
  size: number | null;
  path: string;
  problem: string | null;
}

export interface StateOperator {
  id: string;
  uid: string;
  name: string;
  vertex: string | null;
  parallelism: number;
  "max-parallelism": number;
  size: number | null;
  rows: number | null;
}

export interface StateInfo {
  snapshot: number | null;
  backend: string;
  "savepoint-directory": string | null;
  operators: StateOperator[];
  problem: string | null;
  snapshots: StateSnapshot[];
}

export interface StateFigures {
  table: string;
  name: string;
  kind: string;
  unreadable: string[];
  "is-waiting": boolean;
  rows: number | null;
  size: number;
  "expired-rows": number | null;
  "oldest-window": number | null;
  subtasks: { subtask: number; rows: number | null; size: number }[];
  "subtask-skew": number | null;
  "key-group-count": number | null;
  "key-group-skew": number | null;
  "key-groups": { "key-group": number; subtask: number; rows: number; size: number }[];
  keys: { key: string; rows: number; size: number }[];
  "are-keys-exact": boolean;
  timers: { domain: string; next: number; due: Record<string, number> }[];
  "is-partial": boolean;
}

export interface OperatorState {
  id: string;
  title: string;
  "taken-at": number;
  watermark: number | null;
  states: StateFigures[];
}

export interface StateRows {
  columns: { name: string; type: string; "is-readable": boolean }[];
  rows: { subtask: number; values: JsonValue[]; cut: string[] }[];
  notes: string[];
}

export interface StateEdit {
  action: "set" | "delete" | "delete-key";
  operator: string;
  state?: string;
  key: JsonValue;
  value?: JsonValue;
}

export interface StateEditOperation {
  status: { id: "IN_PROGRESS" | "COMPLETED" };
  operation: {
    location?: string;
    changes?: { operator: string; state: string; action: string; added: number; changed: number; removed: number }[];
    "failure-cause"?: FailureCause;
  } | null;
}

export interface TriggerAnswer {
  "request-id": string;
}

export interface FailureCause {
  class: string;
  "stack-trace": string;
}

export interface SavepointOperation {
  status: { id: "IN_PROGRESS" | "COMPLETED" };
  operation: { location?: string; "failure-cause"?: FailureCause } | null;
}

export interface CheckpointOperation {
  status: { id: "IN_PROGRESS" | "COMPLETED" };
  operation: { checkpointId?: number; failureCause?: FailureCause } | null;
}
