/** Rows of lists that the API's own description leaves open, and which address answers with what. */
declare namespace Api {
  interface List<T> {
    items: T[];
    next: string | null;
  }

  /** A config as JSON: its fields follow the JSON Schema of `GET /config-schema`, which forms read at run time. */
  type Config = Record<string, any>;

  interface Checkpoint {
    id: string;
    name: string;
    step: number;
    attempt: number;
    accuracy: number | null;
    bytes: number;
    kept_for: 'warning' | 'verdict' | null;
    onset: number | null;
    created_at: string;
    files: { name: string }[];
  }

  /** What a resumed or forked run took from a checkpoint. */
  interface Manifest {
    checkpoint: string;
    step: number;
    run?: string;
    parts: string[];
    fresh: string[];
    refused: { checkpoint: string; reason: string }[];
    versions: Record<string, [string, string]>;
  }

  interface RunEvent {
    id: string;
    run: string | null;
    attempt: number | null;
    at: string;
    kind: string;
    level: 'info' | 'warning' | 'error';
    step: number | null;
    message: string;
    data: { restored?: Manifest; file?: string } | null;
  }

  /** A piece of a trainer's output. */
  interface LogChunk {
    attempt: number;
    text: string;
  }

  interface QueuedRun extends RunItem {
    position: number;
    why: string;
  }

  interface SandboxLayers {
    on: string[];
    missing: string[];
    /** Why programs of the policy and plugins are refused there; '' where they run. */
    runs_no_programs?: string;
  }

  /** One device of a worker; it trains one run at a time. */
  interface WorkerSlot {
    id: string;
    host: string;
    pid: number;
    slot: number;
    device: string;
    device_name: string | null;
    status: string;
    run: string | null;
    run_name: string | null;
    started_at: string;
    seen_at: string;
    stats: WorkerStats | null;
  }

  /** Load of a worker's machine and of the slot's GPU; what a system does not tell is missing. */
  interface WorkerStats {
    cpu_frac?: number;
    memory_bytes?: number;
    memory_total_bytes?: number;
    disk_free_bytes?: number;
    disk_read_rate?: number;
    disk_write_rate?: number;
    network_receive_rate?: number;
    network_send_rate?: number;
    gpu_frac?: number;
    gpu_memory_bytes?: number;
    gpu_memory_total_bytes?: number;
    gpu_celsius?: number;
    gpu_watts?: number;
    sandbox?: SandboxLayers;
  }

  interface MetricEntry {
    name: string;
    section: string;
    unit: string;
    meaning: string;
    scale: string[];
    band: [number | null, number | null] | null;
    better: string | null;
  }

  /** A preset, a recipe or a data set. Presets and data sets have a family and a source. */
  interface Offer {
    name: string;
    title: string;
    family?: string;
    source?: string;
    note: string;
    config: Config;
  }

  interface PolicyOffer {
    name: string;
    title: string;
    note: string;
    profile: Config;
  }

  interface ProblemKind {
    name: string;
    title: string;
  }

  interface ConfigSchema {
    schema: Config;
    defaults: Config;
    groups: { title: string; fields: string[] }[];
    secondary: string[];
    switches: Record<string, { path: string; values: string[] }>;
  }

  interface ProblemPreview {
    items: { prompt: string; answer: string | number | null }[];
    note: string;
  }

  interface ServicePart {
    state: string;
    detail: string;
    since: string;
  }

  /** A run whose finished steps wait for the database. */
  interface UnwrittenSteps {
    run: string;
    since: string;
    steps: number;
    is_held: boolean;
  }

  interface ServiceStatus {
    database: ServicePart;
    broker: ServicePart;
    disk: ServicePart;
    history: ServicePart;
    waiting: UnwrittenSteps[];
  }

  /** What GET answers at a path below /api/v1. */
  type Answer<Path extends string> = Path extends '/runs'
    ? RunPage
    : Path extends '/runs/ids'
      ? RunIds
      : Path extends `/runs/${string}/checkpoints/copies`
        ? CopyPage
        : Path extends `/runs/${string}/checkpoints`
          ? List<Checkpoint>
          : Path extends `/runs/${string}/events`
            ? List<RunEvent>
            : Path extends `/runs/${string}/logs`
              ? List<LogChunk>
              : Path extends `/runs/${string}`
                ? RunItem
                : Path extends keyof Fixed
                  ? Fixed[Path]
                  : Path extends `/rollouts/${string}/tokens`
                    ? TokensResponse
                    : any;

  /** Addresses without parameters. */
  interface Fixed {
    '/config-schema': ConfigSchema;
    '/datasets': DatasetPage;
    '/experiments': ExperimentPage;
    '/matrix': Matrix;
    '/metric-catalog': List<MetricEntry>;
    '/policies': List<PolicyOffer>;
    '/presets': List<Offer>;
    '/data-recipes': List<Offer>;
    '/problems': List<ProblemKind>;
    '/queue': List<QueuedRun>;
    '/recipes': List<Offer>;
    '/rollouts': GroupPage;
    '/run-fields': QueryFieldPage;
    '/run-values': RunValuePage;
    '/rollouts/steps': StepPage;
    '/series': SeriesResponse;
    '/session': Session;
    '/sessions': SessionPage;
    '/status': ServiceStatus;
    '/trials': TrialPage;
    '/views': ViewPage;
    '/workers': List<WorkerSlot>;
  }

  /** What POST answers at a path below /api/v1. */
  type Made<Path extends string> = Path extends '/experiments'
    ? LaunchedExperiment
    : Path extends '/validate'
      ? Validated
      : Path extends '/problems/preview'
        ? ProblemPreview
        : Path extends `/runs/${string}/trials/plan`
          ? TrialPlanItem
          : Path extends `/runs/${string}/trials`
            ? TrialItem
            : Path extends '/runs/actions'
              ? ActionOutcome
              : Path extends `/runs/${string}`
                ? RunItem
                : any;
}
