/** Objects of the API, as the service answers them. Written by `make docs`; do not edit. */
declare namespace Api {
  interface ActionOutcome {
    matched: number;
    changed: string[];
    refused: KeptRun[];
    missing: number;
  }
  interface Alternatives {
    ids: number[][];
    logprobs: ((number | string)[])[];
    strings: Record<string, string>;
  }
  interface ArmResult {
    name: string;
    changes: Record<string, any>;
    is_pending?: boolean;
    planned: number;
    waiting: number;
    recurred: number;
    spared: number;
    unjudged: number;
    failed: number;
    stopped: number;
    deleted: number;
    goal_end: number | null;
    p: number | null;
  }
  interface AttemptItem {
    number: number;
    from_step: number | null;
    worker: string;
    host: string;
    pid: number | null;
    device: string;
    devices: number;
    nodes: number;
    slot_price: number | null;
    judge_cost: number | null;
    currency: string | null;
    versions: Record<string, any>;
    started_at: string;
    ended_at: string | null;
    outcome: string;
  }
  interface BadLineItem {
    line: number;
    reason: string;
  }
  interface Best {
    value: number;
    step: number;
  }
  interface BreakdownExample {
    window: 'before' | 'after';
    step: number;
    group: string;
  }
  interface BreakdownResponse {
    run: string;
    metric: string;
    by: 'prompt' | 'group' | 'flag' | 'length' | 'term';
    before: BreakdownWindow;
    after: BreakdownWindow;
    change: number;
    completions: number;
    of: number;
    notes: string[];
    rows: BreakdownRow[];
  }
  interface BreakdownRow {
    kind: 'category' | 'others' | 'not_stored';
    label: string;
    prompt: string;
    marks: string[];
    before: BreakdownSide;
    after: BreakdownSide;
    value: number;
    share: number;
    total: number;
    examples: BreakdownExample[];
  }
  interface BreakdownSide {
    share: number;
    mean: number | null;
    completions: number;
  }
  interface BreakdownWindow {
    first: number;
    last: number;
    steps: number;
    value: number;
  }
  interface BudgetBin {
    first: number;
    last: number;
    completions?: number[] | null;
    tokens?: number[] | null;
    seconds?: number[] | null;
  }
  interface CapItem {
    cap: number;
    limited: number;
    mean: number;
    ess: number;
    lost: number;
  }
  interface CauseItem {
    cause: string;
    title: string;
    onset: Steps;
    tier: 'specific' | 'consistent';
    strength: number;
    lasting: number;
    evidence: string[];
    metrics: string[];
    is_in_config: boolean;
    share: number;
    explained_by: string;
    remedy: RemedyItem;
  }
  interface CheckFinding {
    level: 'good' | 'warn' | 'bad';
    text: string;
    change?: ConfigChange | null;
  }
  interface CheckReport {
    prompts: number;
    completions: number;
    pass_rate: number | null;
    pass_rate_error: number | null;
    never_solved: number | null;
    always_solved: number | null;
    truncated: number;
    group_size: number;
    signal: SignalChance[];
    reward: number | null;
    reward_right: number | null;
    references: ReferenceCheck;
    probes: RewardProbe[];
    findings: CheckFinding[];
    forms?: FormTrial[];
    rows?: RowsReport[];
  }
  interface ColumnItem {
    column: string;
    metric: string;
    state: 'taken' | 'renamed' | 'dropped';
    points: number;
    reason: string;
    suggestion?: string;
    hint?: string;
  }
  interface ColumnMapping {
    prompt_field?: string;
    answer_field?: string;
    answer_after?: string;
    answer_form?: 'text' | 'boxed';
  }
  interface CompletionItem {
    id: string;
    text: string;
    reward: number | string | null;
    rewards: Record<string, number | string | null>;
    advantage: number | string | null;
    tokens: number;
    finish_reason: string;
    correct: boolean | null;
    flags: string[];
    blocks: TextBlock[];
  }
  interface ConfigChange {
    path: string;
    value: string;
  }
  interface CopyItem {
    name: string;
    is_here: boolean;
    is_copied: boolean;
  }
  interface CopyPage {
    items: CopyItem[];
    next: null;
    has_store: boolean;
  }
  interface Cost {
    slot_hours: number;
    gpu_hours: number;
    money: Record<string, number>;
    judges: Record<string, number>;
  }
  interface CountItem {
    step: number;
    completions: number;
    matching: number;
    stored: number;
  }
  interface CountPage {
    items: CountItem[];
    next: string | null;
  }
  interface DatasetItem {
    path: string;
    name: string;
    bytes: number;
    changed_at: string;
    sha256: string | null;
    rows: number | null;
    mapping: ColumnMapping | null;
  }
  interface DatasetPage {
    items: DatasetItem[];
    next: string | null;
    max_bytes: number;
  }
  interface DatasetPreview {
    columns: string[];
    mapping: ColumnMapping | null;
    rows: RowPreview[];
    notes: string[];
    sample: string;
  }
  interface DiagnosisItem {
    verdict: 'healthy' | 'recovered' | 'declining' | 'collapsed' | 'never_learned' | 'inconclusive';
    goal: string;
    start: number | null;
    best: number | null;
    best_step: number;
    end: number | null;
    note: string;
    onset: Steps | null;
    fall: Steps | null;
    first_signals: string[];
    causes: CauseItem[];
    warnings: FindingItem[];
    unjudged: UnjudgedItem[];
  }
  interface EmptiedTrash {
    deleted: string[];
    kept: KeptRun[];
  }
  interface End {
    n: number;
    mean?: number | null;
    low?: number | null;
    high?: number | null;
  }
  interface Ended {
    ended: string;
  }
  interface EvaluationItem {
    run: string;
    step: number;
    suite: string;
    values: Record<string, number | string>;
    intervals: Record<string, (number | string)[]>;
    source: string;
    source_step: number;
    source_kind: string;
    has_checkpoint: boolean;
    is_best: boolean;
  }
  interface EvaluationPage {
    items: EvaluationItem[];
    left_out: number;
  }
  interface EvidenceItem {
    cause: string;
    kind: string;
    step: number;
    marks: string[];
    completions: number;
  }
  interface EvidencePage {
    items: EvidenceItem[];
    next: string | null;
  }
  interface ExperimentDetail {
    id: string;
    name: string;
    created_at: string;
    variants: string[];
    seeds: number[];
    runs: number;
    kind: 'variants' | 'sweep' | 'search' | 'trial';
    statuses: Record<string, number>;
    verdicts: Record<string, number>;
    best_accuracy: number | null;
    active_at: string;
    request: Record<string, any>;
  }
  interface ExperimentItem {
    id: string;
    name: string;
    created_at: string;
    variants: string[];
    seeds: number[];
    runs: number;
    kind: 'variants' | 'sweep' | 'search' | 'trial';
    statuses: Record<string, number>;
    verdicts: Record<string, number>;
    best_accuracy: number | null;
    active_at: string;
  }
  interface ExperimentPage {
    items: ExperimentItem[];
    next: string | null;
    total: number | null;
  }
  interface ExperimentPlan {
    knobs: string[];
    cells: PlannedCell[];
    search: PlannedSearch | null;
    runs: number;
    seconds_low: number;
    seconds_high: number;
    tokens_at_most: number;
    currency: string | null;
    money_low: number | null;
    money_high: number | null;
  }
  interface Finalist {
    number: number;
    variant: string;
    n: number;
    waiting: number;
    mean: number | null;
    low: number | null;
    high: number | null;
    difference: number | null;
    difference_low: number | null;
    difference_high: number | null;
    paired: boolean | null;
    p: number | null;
  }
  interface FindingItem {
    cause: string;
    title: string;
    onset: Steps;
    tier: 'specific' | 'consistent';
    strength: number;
    lasting: number;
    evidence: string[];
    metrics: string[];
    is_in_config: boolean;
  }
  interface ForkPointItem {
    run: string | null;
    step: number;
    due_step: number;
    words: string;
  }
  interface FormTrial {
    name: 'own' | 'plain' | 'chat' | 'chat_boxed' | 'chat_quiet';
    title: string;
    policy: Record<string, any>;
    prompt: string;
    answered: number | null;
    truncated: number | null;
    tokens: number | null;
    refusal: string;
  }
  interface GroupItem {
    id: string;
    run: string;
    step: number;
    attempt: number;
    kind: string;
    prompt_index: number;
    prompt_id: string;
    problem: string;
    domain: string;
    prompt: string;
    answer: string;
    reward_mean: number | null;
    reward_std: number | null;
    left_out: string;
    damage: string;
    completions: CompletionItem[];
  }
  interface GroupLoss {
    id: string;
    loss: number | string | null;
    completions: (number | string | null)[];
    damage: string;
  }
  interface GroupPage {
    items: GroupItem[];
    next: string | null;
  }
  interface HelpMatch {
    address: string;
    page: string;
    title: string;
    excerpt: string;
  }
  interface HelpMatches {
    items: HelpMatch[];
  }
  interface ImportReport {
    format: string;
    format_title: string;
    origin: string;
    rows: number;
    metrics: number;
    points: number;
    first_step: number;
    last_step: number;
    step: string;
    step_candidates: string[];
    columns: ColumnItem[];
    bad_lines: BadLineItem[];
    bad_line_count: number;
    restarts: RestartItem[];
    restart_count: number;
    replaced: number;
    completions: number;
    config_fields: number;
    notes: string[];
  }
  interface ImportResponse {
    run: string | null;
    name: string;
    experiment: string;
    variant: string;
    seed: number;
    runs: RunItemOfImport[];
    report: ImportReport;
  }
  interface ImportedJudgements {
    rows: number;
    stored: number;
    unchanged: number;
    refused: RejectedRow[];
    refused_rows: number;
  }
  type JsonValue = unknown;
  interface KeptRun {
    id: string;
    name: string;
    reason: string;
  }
  interface LabelCount {
    label: string;
    completions: number;
  }
  interface LabelCounts {
    items: LabelCount[];
    next: null;
  }
  interface LabelItem {
    label: string;
    note: string;
    role: string;
    version: number;
    changed_at: string;
  }
  interface LabelList {
    items: LabelItem[];
  }
  interface LaunchedExperiment {
    id: string;
    name: string;
    runs: LaunchedRun[];
  }
  interface LaunchedRun {
    id: string;
    name: string;
    variant: string;
    seed: number;
    status: string;
  }
  interface LiftItem {
    phrase: string;
    a: number;
    b: number;
    log_odds: number;
    z: number;
  }
  interface LiftResponse {
    a: LiftSide;
    b: LiftSide;
    items: LiftItem[];
    fell: LiftItem[];
  }
  interface LiftSide {
    label: string;
    completions: number;
    of: number;
    words: number;
  }
  interface LossSums {
    run: string;
    step: number;
    logged: number | string | null;
    stored: number | string | null;
    unstored: number | string | null;
    difference: number | string | null;
    terms: Record<string, number | string | null>;
    groups: GroupLoss[];
  }
  interface Matrix {
    baseline: number;
    columns: MatrixColumn[];
    rows: MatrixRow[];
    looks: 'planned' | 'any time';
    planned: number | null;
    tests: number;
    tokens: number | null;
    missing: string[];
    notes: string[];
  }
  interface MatrixCell {
    n: number;
    mean: number | null;
    std: number | null;
    low: number | null;
    high: number | null;
    values: (number | string | null)[];
    reached: number | null;
    sparkline: (number | null)[];
    versus: Versus | null;
    verdict: 'baseline' | 'better' | 'worse' | 'higher' | 'lower' | 'more seeds' | 'no difference shown' | 'no claim' | 'not comparable';
    reason: string;
    more_seeds: number | null;
  }
  interface MatrixColumn {
    key: string;
    metric: string;
    reading: 'final' | 'best' | 'equal_tokens' | 'auc' | 'steps_to' | 'tokens_to' | 'seconds_to';
    threshold: number | null;
    unit: string;
    better: 'up' | 'down' | '';
  }
  interface MatrixRow {
    variant: string;
    runs: MatrixRun[];
    cells: Record<string, MatrixCell>;
  }
  interface MatrixRun {
    verdict: 'healthy' | 'recovered' | 'declining' | 'collapsed' | 'never_learned' | 'inconclusive' | null;
    onset: Steps | null;
    cause: string;
    judged_step: number | null;
    id: string;
    name: string;
    variant: string;
    seed: number;
    status: string;
    counts: boolean;
  }
  interface MemoryChange {
    path: string;
    value: JsonValue;
    saves_bytes: number;
  }
  interface MemoryEstimate {
    unknown?: string;
    peak_bytes?: number | null;
    host_bytes?: number | null;
    phase?: 'sample' | 'learn' | null;
    parts?: Record<string, number>;
    prompt_tokens?: number | null;
    device?: 'cpu' | 'gpu' | null;
    devices?: number;
    nodes?: number;
    slots?: MemorySlot[];
  }
  interface MemorySlot {
    host: string;
    device_name: string;
    slots: number;
    verdict: 'fits' | 'fits with changes' | 'does not fit' | 'unknown';
    peak_bytes: number;
    usable_bytes?: number | null;
    changes?: MemoryChange[];
  }
  interface Mismatch {
    run: string;
    step: number;
    kind: 'token_tis' | 'token_mask' | 'seq_tis' | 'seq_mask';
    level: 'product' | 'geo';
    low: number | null;
    run_cap: number | null;
    tokens: number;
    completions: number;
    groups: number;
    of_groups: number;
    caps: CapItem[];
    sampler: number[];
    trainer: number[];
    position: number[];
    age: number[];
  }
  interface Missing {
    run: string;
    metric: string;
    reason: string;
  }
  interface NonFinite {
    step: number;
    x: number;
    value: string;
  }
  interface Origin {
    run: string;
    step: number;
  }
  interface Page {
    items: Record<string, any>[];
    next: string | null;
  }
  interface PlanError {
    path: string;
    message: string;
  }
  interface PlannedCell {
    variant: string;
    of: string;
    values: JsonValue[];
    errors: PlannedField[];
    seconds_low: number | null;
    seconds_high: number | null;
    tokens_at_most: number | null;
  }
  interface PlannedField {
    path: string;
    message: string;
  }
  interface PlannedSearch {
    configurations: number;
    top: number;
    additional_runs: number;
    runs: number;
    drawn: number;
    refused: number;
  }
  interface ProbeItem {
    id: string;
    prompt: string;
    answer: string;
    problem: string;
    domain: string;
    runs: ProbeRow[];
  }
  interface ProbeMatrix {
    runs: ProbeRun[];
    items: ProbeItem[];
    prompts: number;
    runs_left_out: number;
  }
  interface ProbeRow {
    rates: (number | null)[];
    stored: boolean[];
    first_solved: number | null;
    first_lost: number | null;
    forgotten: boolean;
  }
  interface ProbeRun {
    id: string;
    steps: number[];
  }
  interface PromptAtlas {
    items: PromptItem[];
    next: string | null;
    matching: number;
    counts: Record<string, number>;
    first_step: number;
    last_step: number;
  }
  interface PromptItem {
    id: string;
    prompt: string;
    answer: string;
    problem: string;
    domain: string;
    groups: number;
    graded: number;
    right: number;
    state: string;
    windows: (number | null)[];
    rate: number | null;
    first: number | null;
    last: number | null;
    drift: number | null;
  }
  interface PushResponse {
    run: string;
    status: string;
    stop: boolean;
    stored?: number;
  }
  interface QueryField {
    name: string;
    type: 'text' | 'number' | 'date' | 'tags' | 'config' | 'metric';
    values: string[];
  }
  interface QueryFieldPage {
    items: QueryField[];
    next: null;
  }
  interface ReferenceCheck {
    checked: number;
    missing: number;
    wrong: number;
    examples: WrongReference[];
    reward: number | null;
  }
  interface RejectedRow {
    row: number;
    reason: string;
  }
  interface RemedyItem {
    words: string;
    changes: Record<string, any>;
    source: string;
  }
  interface RepeatResult {
    state: 'waiting' | 'repeats' | 'differs' | 'unknown';
    step?: number | null;
    metric?: string;
  }
  interface Repeats {
    rows: number;
    duplicates: number;
    near: number;
    contaminated: number;
    twins: Twin[];
  }
  interface RestartItem {
    line: number;
    before: number;
    after: number;
  }
  interface RewardProbe {
    name: 'empty' | 'echo' | 'format' | 'ten_answers';
    title: string;
    example: string;
    reward: number | null;
  }
  type Role = 'viewer' | 'operator' | 'writer';
  interface RowPreview {
    prompt: string;
    answer: string;
    is_held_out: boolean;
    error: string;
  }
  interface RowsReport {
    source: string;
    rows: number;
    duplicates: number;
    contaminated: number;
    out_of_range: number;
    examples: string[];
    near?: number;
    twins?: string[];
    dropped?: ('duplicates' | 'contamination' | 'near_duplicates')[];
  }
  interface RunIds {
    ids: string[];
  }
  interface RunItem {
    verdict: 'healthy' | 'recovered' | 'declining' | 'collapsed' | 'never_learned' | 'inconclusive' | null;
    onset: Steps | null;
    cause: string;
    judged_step: number | null;
    id: string;
    name: string;
    experiment: string | null;
    experiment_name: string | null;
    variant: string;
    seed: number;
    config_hash: string;
    status: string;
    reason: string;
    requested_action: string;
    priority: number;
    archived: boolean;
    deleted: boolean;
    steps: number;
    last_step: number;
    summary: Summary;
    tags: string[];
    notes: string;
    colour: number;
    parent_run: string | null;
    fork_step: number | null;
    origin: string;
    origin_file: string;
    writer: string | null;
    seen_at: string | null;
    is_check: boolean;
    created_at: string;
    queued_at: string;
    started_at: string | null;
    finished_at: string | null;
    parent_name?: string | null;
    check?: CheckReport | null;
    config?: Record<string, any> | null;
    changes?: Record<string, any> | null;
    attempts?: AttemptItem[] | null;
    cost?: Cost | null;
  }
  interface RunItemOfImport {
    label: string;
    is_chosen: boolean;
    run: string | null;
    name: string;
    rows: number;
    completions: number;
  }
  interface RunPage {
    items: RunItem[];
    next: string | null;
    total?: number | null;
  }
  interface RunValue {
    value: string;
    label: string;
    runs: number;
  }
  interface RunValuePage {
    items: RunValue[];
    next: null;
  }
  interface SearchEvent {
    at: string;
    run: string;
    message: string;
  }
  interface SearchItem {
    experiment: string;
    status: 'searching' | 'comparing' | 'finished' | 'stopped';
    reason: string;
    settings: SearchSettings;
    configurations: number;
    seeds: number[];
    knobs: string[];
    trials: SearchTrialItem[];
    best: number | null;
    finalists: Finalist[];
    verdict: string;
    steps_saved: number | null;
    runs: number;
    hours: number;
    money: Record<string, number>;
    events: SearchEvent[];
  }
  interface SearchList {
    items: SearchItem[];
  }
  interface SearchMatch {
    id: string;
    group: string;
    run: string;
    step: number;
    kind: string;
    prompt_index: number;
    prompt_id: string;
    prompt: string;
    answer: string;
    position: number;
    reward: number | string | null;
    correct: boolean | null;
    tokens: number;
    finish_reason: string;
    flags: string[];
    labels: LabelItem[];
    snippet: Snippet;
  }
  interface SearchMatchPage {
    items: SearchMatch[];
    next: string | null;
    searched_to: number | null;
    waiting: number;
  }
  interface SearchSettings {
    sampler?: 'tpe' | 'random';
    metric?: string;
    direction?: 'catalog' | 'maximize' | 'minimize';
    reading?: 'final' | 'best' | 'mean_of_3';
    pruner?: 'none' | 'median' | 'halving';
    prune_sick?: boolean;
    first_rung?: number;
    max_active_runs?: number;
    top?: number;
    hours?: number | null;
    money?: number | null;
  }
  interface SearchTrialItem {
    number: number;
    values: JsonValue[];
    variant: string;
    run: string | null;
    run_name: string | null;
    state: 'refused' | 'deleted' | 'queued' | 'running' | 'paused' | 'pruned' | 'finished' | 'stopped' | 'failed' | 'no value';
    reason: string;
    step: number;
    value: number | null;
    counts: boolean;
    best: number | null;
    chosen: boolean;
  }
  interface SeriesItem {
    run?: string | null;
    group?: string | null;
    runs?: string[] | null;
    name: string;
    metric: string;
    x?: number[] | null;
    steps: number[];
    values: number[];
    non_finite: NonFinite[];
    raw_points: number;
    n?: number[] | null;
    gaps?: NonFinite[] | null;
    origin?: Origin | null;
    low?: (number | null)[] | null;
    high?: (number | null)[] | null;
    end?: End | null;
  }
  interface SeriesResponse {
    series: SeriesItem[];
    missing: Missing[];
    cursor: string | null;
  }
  interface Session {
    role: Role;
    session: string | null;
  }
  interface SessionItem {
    id: string;
    role: Role;
    user_agent: string;
    created_at: string;
    seen_at: string;
    ends_at: string;
    is_current: boolean;
  }
  interface SessionPage {
    items: SessionItem[];
    next: null;
  }
  interface SignalBudget {
    run: string;
    source: 'trainer' | 'rollouts' | '';
    parts: string[];
    steps: number;
    totals: Record<string, number[]>;
    bins: BudgetBin[];
  }
  interface SignalBudgets {
    items: SignalBudget[];
    next: null;
  }
  interface SignalChance {
    group_size: number;
    useful: number;
    error: number;
    silent_below: number;
    silent: number;
  }
  interface Snippet {
    text: string;
    marks: unknown[][];
    is_start: boolean;
    is_end: boolean;
  }
  interface StepCount {
    step: number;
    matched: number;
    of: number;
  }
  interface StepCounts {
    items: StepCount[];
    next: null;
    every: number;
  }
  interface StepItem {
    step: number;
    kind: string;
    groups: number;
    reward_mean: number | null;
  }
  interface StepPage {
    items: StepItem[];
    next: string | null;
  }
  interface Steps {
    healthy: number;
    sick: number;
  }
  interface StoredRates {
    sha256: string;
    run: string;
    run_name: string;
    last_step: number;
    prompts: number;
  }
  interface Summary {
    step?: number;
    last?: Record<string, number | string>;
    best?: Record<string, Best>;
    older?: Record<string, number>;
  }
  interface Symbol {
    symbol: string;
    mathml: string;
    meaning: string;
  }
  interface TextBlock {
    kind: 'own' | 'call' | 'observation';
    text: string;
    turn: TurnItem | null;
  }
  interface TokensResponse {
    id: string;
    tokens: string[];
    token_ids: number[];
    arrays: Record<string, (number | string)[]>;
    advantage: number | string | null;
    mask: number[];
    observed: number[];
    alternatives: Alternatives | null;
    note: string;
    damage: string;
  }
  interface TrialArm {
    name: string;
    changes: Record<string, any>;
  }
  interface TrialItem {
    id: string;
    run: string;
    run_name: string;
    experiment: string | null;
    initial_verdict: 'healthy' | 'recovered' | 'declining' | 'collapsed' | 'never_learned' | 'inconclusive';
    cause: string;
    title: string;
    onset: Steps | null;
    fork: ForkPointItem;
    steps: number;
    seeds: number[];
    created_at: string;
    judged_at: string | null;
    verdict: TrialVerdict;
  }
  interface TrialPage {
    items: TrialItem[];
    next: string | null;
  }
  interface TrialPlanItem {
    run: string;
    verdict: 'healthy' | 'recovered' | 'declining' | 'collapsed' | 'never_learned' | 'inconclusive';
    cause: string;
    title: string;
    remedy: RemedyItem | null;
    onset: Steps | null;
    alarm: number;
    fork: ForkPointItem;
    steps: number;
    seeds: number[];
    repeat_seed: number;
    arms: TrialArm[];
    one_by_one: boolean;
    heals_in: number;
    notes: string[];
    errors: PlanError[];
    price: TrialPrice;
  }
  interface TrialPrice {
    runs: number;
    steps: number;
    seconds_low: number | null;
    seconds_high: number | null;
    disk_bytes: number;
    checkpoint_bytes: number | null;
    least_p: number;
  }
  interface TrialVerdict {
    complete: boolean;
    goal: string;
    arms: ArmResult[];
    repeat: RepeatResult;
    sentences: string[];
  }
  interface TurnItem {
    tool: string;
    outcome: string;
    seconds: number;
    is_cut: boolean;
  }
  interface Twin {
    line: number;
    other: number;
    similarity: number;
  }
  interface UnjudgedItem {
    cause: string;
    title: string;
    needs: string;
  }
  interface Validated {
    config: Record<string, any>;
    formula: string;
    formula_mathml: string;
    formula_notes: string[];
    formula_legend: Symbol[];
    estimates: Record<string, number | null>;
    memory: MemoryEstimate;
    warnings: string[];
  }
  interface Versus {
    paired: boolean;
    n: number;
    mean: number;
    low: number | null;
    high: number | null;
    p: number | null;
    p_corrected: number | null;
    effect: number | null;
    variance_ratio: number | null;
  }
  interface ViewItem {
    page?: 'runs' | 'compare';
    settings?: Record<string, string>;
    query?: string;
    status?: string;
    verdict?: string;
    tag?: string;
    variant?: string;
    experiment?: string;
    archived?: boolean;
    sort?: string;
    group?: string;
    columns?: string[] | null;
    id: string;
    name: string;
    changed_at: string;
  }
  interface ViewPage {
    items: ViewItem[];
    next: null;
  }
  interface WhatIf {
    run: string;
    step: number;
    groups: string[];
    group_size: number;
    of_groups: number;
    notes: string[];
    variants: WhatIfVariant[];
  }
  interface WhatIfCompletion {
    advantage: number | string | null;
    loss: number | string | null;
    gradient: number | string | null;
    clipped: number | null;
  }
  interface WhatIfVariant {
    name: string;
    problem?: string;
    formula: string;
    formula_mathml: string;
    loss?: number | string | null;
    terms?: Record<string, number | string | null>;
    metrics?: Record<string, number | string | null>;
    weight?: string;
    numbers?: Record<string, number | string | null>;
    completions?: WhatIfCompletion[];
  }
  interface WrongReference {
    id: string;
    source: string;
    prompt: string;
    answer: string;
  }
}
