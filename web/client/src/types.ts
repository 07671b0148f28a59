// Generated from the server's own structs by `python -m protocol.schema`. Not edited by hand.

/** Any JSON object. */
export type JsonObject = { [key: string]: unknown };

export interface Abort {
  type: "abort";
  run_id?: string | null;
  clear_queue?: boolean;
  client_request_id: string;
  priority?: boolean;
}

export interface Ack {
  type: "ack";
  client_request_id: string;
  accepted: boolean;
  result: JsonObject;
  by?: string | null;
}

export interface AddCitation {
  op: "add_citation";
  citation: JsonObject;
}

export interface AddServerContentBlock {
  op: "add_server_content_block";
  block: JsonObject;
}

/** A chat for a running stream. `from`: an SSE id of that chat, or of a stream that carried it, to go on after. */
export interface Addition {
  chat_id: string;
  from?: string | null;
}

/** `POST /v1/agent/chat`. `context_type` is the scope: a name, or up to three, the widest first. The request creates a conversation under a `conversation_id` that does not exist. `mode` is read where the operator allows it. */
export interface AgentChatRequest {
  message: string;
  context_type: string | string[];
  context?: JsonObject | null;
  conversation_id?: string | null;
  mode?: string | null;
  on_disconnect?: "abort" | "detach" | null;
}

export interface AppendContent {
  op: "append_content";
  text: string;
}

export interface AppendReasoning {
  op: "append_reasoning";
  text: string;
}

/** Tools whose calls a chat does not ask about any more; `mcp__SERVER__*` is all of a server's (PROTOCOL §11). */
export interface Approvals {
  tools: string[];
}

export interface AudioPart {
  type: "input_audio";
  input_audio: InputAudio;
}

export interface BackgroundAgentUpdated {
  type: "background_agent_updated";
  agent: JsonObject;
}

/** An upload: `url` is what a command refers to it by, or `hash` where a part asks for `blob`. */
export interface BlobStored {
  url: string;
  hash: string;
  mime: string;
  bytes: number;
}

export interface BranchFromChat {
  type: "branch_from_chat";
  source_chat_id: string;
  up_to_message_id: string;
  client_request_id: string;
  priority?: boolean;
}

/** The active path now ends at `leaf_id`. Readers get a snapshot instead (PROTOCOL §5). */
export interface BranchSelected {
  type: "branch_selected";
  leaf_id: string;
}

export interface BrowserClosed {
  type: "browser_closed";
}

export interface BrowserContextDecision {
  type: "browser_context_decision";
  pending_message_id: string;
  include_actions?: boolean;
  include_console?: boolean;
  include_network?: boolean;
  include_mutations?: boolean;
  include_screenshot?: boolean;
  last_n_actions?: number | null;
  last_n_console?: number | null;
  last_n_network?: number | null;
  last_n_mutations?: number | null;
  client_request_id: string;
  priority?: boolean;
}

export interface BrowserContextOversize {
  type: "browser_context_oversize";
}

export interface BrowserFrame {
  type: "browser_frame";
}

export interface BrowserStatus {
  type: "browser_status";
}

export interface BrowserTimeline {
  type: "browser_timeline";
}

export interface BrowserToolbarAction {
  type: "browser_toolbar_action";
}

/** What this server can do: the closed lists of commands, events and codes, and limits with their units. */
export interface Capabilities {
  chat_default_model: string;
  chat_models: { [key: string]: ModelCapabilities };
  completion_models: JsonObject;
  metadata: JsonObject | null;
  samplers: { [key: string]: string[] };
  profiles: string[];
  mode_aliases: { [key: string]: string };
  scopes: { [key: string]: string[][] };
  payload_types: { [key: string]: PayloadTypeInfo[] };
  commands: string[];
  events: string[];
  codes: string[];
  frame_origins: string[];
  scripted_providers: string[];
  limits: { [key: string]: number };
}

/** Newest `last_active` first. `next_cursor` is null on the last page. */
export interface ChatList {
  items: ChatSummary[];
  has_more: boolean;
  next_cursor: string | null;
}

/** A profile. The thread's `mode` is its `id`; `aliases` are other names of the profile. Chats show `greeting` ("": none) and `starters` (null: not configured) before the first message. */
export interface ChatMode {
  id: string;
  aliases: string[];
  title: string;
  description: string;
  greeting: string;
  starters: ChatStarter[] | null;
  tools_count: number;
  thread_defaults: ThreadDefaults;
  ui: ModeUi;
}

export interface ChatModes {
  modes: ChatMode[];
  errors: string[];
}

/** Nothing more of this chat will come on a stream of many. `reason`: not_found (deleted, or another's), unfoldable (this server cannot read it), unavailable (it could not be opened; add it again), removed (as was asked). */
export interface ChatRemoved {
  type: "chat_removed";
  reason: string;
}

/** The chat as it stands at `position`; with `id` a subscription goes on from there (`?from=`). */
export interface ChatSnapshot {
  type: "snapshot";
  thread: Thread;
  runtime: Runtime;
  messages: Message[];
  background_agents: JsonObject[];
  payloads?: PayloadAdded[];
  recent_acks?: Ack[];
  chat_id: string;
  position: number;
  id: string;
}

/** A message to begin a chat with. `model` answers this message ("": the chat's model); `context` becomes the chat's parameter of this name before the message is sent ({}: none). */
export interface ChatStarter {
  title: string;
  text: string;
  model: string;
  context: JsonObject;
}

/** One chat of a list. Times are Unix milliseconds. */
export interface ChatSummary {
  id: string;
  title: string;
  state: string;
  model: string;
  mode: string;
  message_count: number;
  queue_size: number;
  created_at: number;
  last_active: number;
}

/** The whole tree at `position`: every message after its parent, siblings as they are; the active path ends at `leaf_id`. */
export interface ChatTree {
  type: "tree";
  chat_id: string;
  position: number;
  id: string;
  thread: Thread;
  runtime: Runtime;
  leaf_id: string | null;
  messages: Message[];
}

export type Command = UserMessage | RetryFromIndex | Regenerate | Abort | SetParams | UpdateMessage | RemoveMessage | ToolDecision | ToolDecisions | IdeToolResult | IdeToolClaim | BranchFromChat | RestoreMessages | BrowserContextDecision | EditQueued | ContinueMessage | SelectBranch;

/** `POST /v1/chat/completions`, as OpenAI has it; of `messages` the last one with role user is taken. `metadata.chat_id` names the chat. `mode` is read where the operator allows it. */
export interface CompletionsRequest {
  messages: JsonObject[];
  model?: string | null;
  stream?: boolean | null;
  stream_options?: JsonObject | null;
  metadata?: JsonObject | null;
  temperature?: number | null;
  top_p?: number | null;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  reasoning_effort?: string | null;
  parallel_tool_calls?: boolean | null;
  mode?: string | null;
  on_disconnect?: "abort" | "detach" | null;
}

/** Text, or parts. Parts of the older form {m_type, m_content} are read too. */
export type Content = string | (TextPart | ImagePart | AudioPart | FilePart | {
  m_type: string;
  m_content: string;
})[];

/** Tokens of the model's window: used by the last call, and in all. */
export interface ContextUse {
  used: number;
  total?: number | null;
}

export interface ContinueMessage {
  type: "continue_message";
  message_id: string;
  client_request_id: string;
  priority?: boolean;
}

/** A person's word on one paused call or preview. One of `tool_call_id`, `payload_id` names it. */
export interface Decision {
  tool_call_id?: string | null;
  accepted: boolean;
  payload_id?: string | null;
  remember?: "call" | "server" | "tool" | null;
  edited_input?: JsonObject | null;
  input_hash?: string | null;
  note?: string | null;
}

/** An absent field stays unchanged (`protocol.content.edited`). With `interrupt` the open run ends and the waiting command is next. */
export interface EditQueued {
  type: "edit_queued";
  target_request_id: string;
  content?: Content | null;
  attachments?: JsonObject[] | null;
  position?: number | null;
  interrupt?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** `message` is a fixed sentence, fit for clients (ERR-2). For a failed model call `details` has the other fields of the failure: `reason`, `status`, `retry_at`, `model` (PROTOCOL §8). */
export interface ErrorHappened {
  type: "error";
  code: string;
  message: string;
  fatal: boolean;
  run_id?: string | null;
  details?: JsonObject | null;
}

export interface FailedImport {
  id: string;
  code: string;
  error: string;
}

/** Every error of every endpoint. `path` is a JSON Pointer into the body; `status` and `error` repeat the code and the sentence where older clients look for them. */
export interface Failure {
  detail: string;
  code: "aborted" | "already_claimed" | "auth_failed" | "bad_request" | "cancelled" | "conflict" | "connection" | "context_overflow" | "crash_loop" | "empty_answer" | "forbidden" | "gone" | "idempotency_mismatch" | "internal" | "interrupted" | "invalid_content" | "llm_error" | "max_tool_rounds" | "no_pending_decision" | "not_found" | "not_implemented" | "poison" | "queue_full" | "rate_limited" | "stream_error" | "timeout" | "too_large" | "tool_error" | "unauthorized" | "unavailable" | "unknown_mode";
  path?: string | null;
  status?: string | null;
  error?: string | null;
}

/** One `data:` line of the feed. `seq` counts from the snapshot, which has 0. */
export interface FeedItem {
  seq: string;
  type: "chat_removed" | "chat_updated" | "feed_snapshot";
  chats?: ChatSummary[];
  has_more?: boolean;
  chat?: ChatSummary;
  chat_id?: string;
}

/** A file by its base64 `data` or its extracted `text`; or by the hash of a blob that holds them, of `bytes`. */
export interface FilePart {
  type: "file";
  name: string;
  mime: string;
  data?: string | null;
  text?: string | null;
  blob?: string | null;
  text_blob?: string | null;
  bytes?: number | null;
}

/** `arguments` is the model's JSON text, exactly as it came. */
export interface FunctionCall {
  name: string;
  arguments: string;
}

/** Ready means that commands can be taken; `detail` says why not, `store` what the store says. `primary` is the store's address behind Sentinel; of a Cluster, `nodes` are its primaries and `away` a sentence for each of them that takes no writes just now (`store` is `partly` then). */
export interface Health {
  status: "draining" | "ok" | "ready" | "starting" | "unavailable";
  store?: string | null;
  detail?: string | null;
  primary?: string | null;
  nodes?: string[];
  away?: string[];
}

/** A call that waits for a client to carry it out. Times are Unix milliseconds. */
export interface IdeCall {
  tool_call_id: string;
  tool_name: string;
  args: JsonObject;
  deadline_at?: number | null;
  claimed_by?: string | null;
  claim_expires_at?: number | null;
}

/** `claimer` names the IDE, so that it can renew its claim; without it every claim is somebody else's. */
export interface IdeToolClaim {
  type: "ide_tool_claim";
  tool_call_id: string;
  claimer?: string | null;
  client_request_id: string;
  priority?: boolean;
}

export interface IdeToolRequired {
  type: "ide_tool_required";
  tool_call_id: string;
  tool_name: string;
  args: JsonObject;
  deadline_at?: number | null;
}

/** `attachments` are the server's own word: the images that it took out of `content`. What a client writes there is replaced. */
export interface IdeToolResult {
  type: "ide_tool_result";
  tool_call_id: string;
  content: string;
  tool_failed?: boolean;
  files_changed?: string[];
  attachments?: JsonObject[];
  client_request_id: string;
  priority?: boolean;
}

export interface ImagePart {
  type: "image_url";
  image_url: ImageUrl;
}

/** `url` is a data URL, or a reference to a blob; then `mime` and `bytes` say what lies there (PROTOCOL §10). */
export interface ImageUrl {
  url: string;
  detail?: string | null;
  mime?: string | null;
  bytes?: number | null;
}

/** What became of each chat of an import, by id, in the order of the body. `skipped`: it was there and was not touched; `accepted`: it will take effect, but had not when the answer was due. */
export interface ImportReport {
  imported: string[];
  skipped: string[];
  accepted: string[];
  failed: FailedImport[];
}

/** `data` is base64; '' when the sound lies in a blob, `blob` then is its hash and `bytes` its size. */
export interface InputAudio {
  data?: string;
  format?: string;
  blob?: string | null;
  bytes?: number | null;
}

/** How the user spoke, when not by typing (CMD-18). */
export interface Interaction {
  type: "action_selected" | "form_submitted" | "text" | "value_selected";
  action?: string | null;
  data?: JsonObject | null;
}

/** An MCP server that could not be asked, and why. */
export interface McpFailure {
  server: string;
  error: string;
}

/** Can be attached as `{type: "mcp_prompt", server, name, args}`. */
export interface McpPrompt {
  server: string;
  name: string;
  description: string;
  arguments: McpPromptArgument[];
}

export interface McpPromptArgument {
  name: string;
  description: string;
  required: boolean;
}

export interface McpPrompts {
  prompts: McpPrompt[];
  errors: McpFailure[];
}

/** Can be attached as `{type: "mcp_resource", server, uri}`. */
export interface McpResource {
  server: string;
  uri: string;
  name: string;
  description: string;
  mime_type: string;
}

export interface McpResources {
  resources: McpResource[];
  errors: McpFailure[];
}

/** Shallow merge into the message's `extra`. */
export interface MergeExtra {
  op: "merge_extra";
  extra: JsonObject;
}

/** One message. Times are Unix milliseconds. */
export interface Message {
  role: string;
  content: string | (TextPart | ImagePart | AudioPart | FilePart)[];
  message_id: string;
  finish_reason?: string | null;
  reasoning_content?: string | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string | null;
  tool_failed?: boolean | null;
  usage?: Usage | null;
  thinking_blocks?: JsonObject[];
  citations?: JsonObject[];
  server_content_blocks?: JsonObject[];
  extra?: JsonObject;
  parent_id?: string | null;
  sibling_ids?: string[];
  sibling_index?: number | null;
  status?: string | null;
  model?: string | null;
  client_request_id?: string | null;
  by?: string | null;
  attachments?: JsonObject[];
  context_files?: JsonObject[];
  context?: JsonObject;
  interaction?: JsonObject | null;
  payloads?: string[];
  active_payload_id?: string | null;
  warning?: string | null;
  suggested_values?: JsonObject[];
  suggested_actions?: JsonObject[];
  hidden?: boolean;
  kind?: string | null;
  created_at?: number | null;
}

/** A message at `index` of the active path: appended, inserted, or the final word on a streamed one. */
export interface MessageAdded {
  type: "message_added";
  message: Message;
  index: number;
}

export interface MessageRemoved {
  type: "message_removed";
  message_id: string;
}

export interface MessageUpdated {
  type: "message_updated";
  message_id: string;
  message: Message;
}

/** The active path was cut to `from_index` messages; the cut ones stay in the tree. */
export interface MessagesTruncated {
  type: "messages_truncated";
  from_index: number;
}

export interface ModeUi {
  order: number;
  tags: string[];
}

export interface ModelCapabilities {
  id: string;
  name: string;
  n_ctx: number;
  tokenizer: string;
  supports_tools: boolean;
  supports_multimodality: boolean;
  supports_clicks: boolean;
  supports_agent: boolean;
  default_temperature: number | null;
  samplers: string[];
  enabled: boolean;
  type: "chat";
}

/** `POST /api/chat/stream`. `current_page`, `active_tab` and `subtab` of the context are the scope, under any names. `mode` is read where the operator allows it. */
export interface PageChatRequest {
  message: string;
  context?: JsonObject | null;
  interaction_type?: string | null;
  conversation_id?: string | number | null;
  mode?: string | null;
  on_disconnect?: "abort" | "detach" | null;
}

export interface ParamValue {
  value: unknown;
  layer: "command" | "profile" | "server" | "thread";
}

/** By the keys of `set_params`. */
export interface Params {
  params: { [key: string]: ParamValue };
}

export interface PauseCleared {
  type: "pause_cleared";
}

/** Why a run waits for a person. `input_hash` binds the decision to the arguments that were shown. */
export interface PauseReason {
  type: string;
  tool_name: string;
  tool_call_id: string;
  command?: string;
  rule?: string;
  integr_config_path?: string | null;
  input?: JsonObject;
  input_hash?: string;
}

export interface PauseRequired {
  type: "pause_required";
  reasons: PauseReason[];
}

export interface PayloadAdded {
  type: "payload_added";
  payload_id: string;
  payload_type: string;
  data: JsonObject;
  summary: string;
  source: string;
  message_id: string;
  tool_call_id?: string | null;
  approval?: string | null;
  by?: string | null;
  input_hash?: string | null;
  unregistered?: boolean;
}

/** What a profile can show besides text. `schema` is JSON Schema of a payload's data; `scopes` none: everywhere. */
export interface PayloadTypeInfo {
  name: string;
  description: string;
  schema: JsonObject;
  scopes: string[][];
}

export interface PayloadUpdated {
  type: "payload_updated";
  payload_id: string;
  payload_type: string;
  data: JsonObject;
  summary: string;
  source: string;
  message_id: string;
  tool_call_id?: string | null;
  approval?: string | null;
  by?: string | null;
  input_hash?: string | null;
  unregistered?: boolean;
}

/** How many streams watch the chat and asked for presence, this one included; `names` of whose they are. */
export interface Presence {
  type: "presence";
  count: number;
  names?: string[] | null;
}

export interface ProcessCompleted {
  type: "process_completed";
  process_id: string;
  status: string;
  exit_code: number | null;
  short_description: string;
  mode: string;
}

export interface ProviderInfo {
  name: string;
  display_name: string;
  enabled: boolean;
  readonly: boolean;
  has_credentials: boolean;
  status: string;
  model_count: number;
}

export interface Providers {
  providers: ProviderInfo[];
}

export interface QueueUpdated {
  type: "queue_updated";
  queue_size: number;
  queued_items: QueuedItem[];
}

/** A waiting command as people see it. `preview` ≤ 120 characters, `content` ≤ 8192 (PROTOCOL §8). */
export interface QueuedItem {
  client_request_id: string;
  priority: boolean;
  command_type: string;
  preview: string;
  content: string;
}

/** As the model wrote it, and how many suggested actions were left out since nobody declared them (PAY-6). */
export interface RawAnswer {
  text: string;
  dropped_actions_count?: number;
}

/** What became of a posted command. `accepted` and `result` are those of its final ack, when it was waited for; the status is then applied, aborted or refused. */
export interface Receipt {
  status: "aborted" | "accepted" | "applied" | "duplicate" | "refused";
  accepted?: boolean | null;
  result?: JsonObject | null;
}

export interface Regenerate {
  type: "regenerate";
  message_id?: string | null;
  model?: string | null;
  client_request_id: string;
  priority?: boolean;
}

export interface RemoveMessage {
  type: "remove_message";
  message_id: string;
  regenerate?: boolean;
  client_request_id: string;
  priority?: boolean;
}

export interface RestoreMessages {
  type: "restore_messages";
  messages: JsonObject[];
  client_request_id: string;
  priority?: boolean;
}

export interface RetryFromIndex {
  type: "retry_from_index";
  index: number;
  content: Content;
  attachments?: JsonObject[];
  prune?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** What a run asked, heard and did. `scope` is the place in the profile that it was in, `params` are the command's own, `raw_answers` answers as the model wrote them, by message id, with the number of suggested actions that were dropped. */
export interface RunTrace {
  chat_id: string;
  run_id: string;
  outcome: string | null;
  error: string | null;
  principal: string | null;
  scope: string[];
  context: JsonObject;
  params: JsonObject;
  started_at: number | null;
  ended_at: number | null;
  rounds: TraceRound[];
  other_tool_runs: TraceToolRun[];
  summaries: TraceSummary[];
  raw_answers: { [key: string]: RawAnswer };
}

/** What is going on now (PROTOCOL §8). `tools` holds the latest `tool_status` of each open call. */
export interface Runtime {
  state: string;
  paused: boolean;
  error: string | null;
  queue_size: number;
  queued_items: QueuedItem[];
  pause_reasons: PauseReason[];
  is_compressing: boolean;
  run_id?: string | null;
  round?: number | null;
  status_text?: string | null;
  active_tool?: string | null;
  outcome?: string | null;
  context?: ContextUse | null;
  tools_used?: string[];
  tools?: ToolStatus[];
  ide_calls?: IdeCall[];
}

/** The whole of what is said about the run: a field that is absent no longer holds. `state` is one of PROTOCOL §7. At rest it carries `outcome`: complete, error, aborted, limit or interrupted. */
export interface RuntimeUpdated {
  type: "runtime_updated";
  state: string;
  is_compressing?: boolean;
  error?: string | null;
  run_id?: string | null;
  round?: number | null;
  status_text?: string | null;
  active_tool?: string | null;
  outcome?: string | null;
  context?: ContextUse | null;
  tools_used?: string[];
}

export interface SelectBranch {
  type: "select_branch";
  message_id: string;
  client_request_id: string;
  priority?: boolean;
}

/** Who is calling. `has_token`: the server knows its callers by tokens; without them everyone is `local`. */
export interface Session {
  principal: string;
  permissions: string[];
  roles: string[];
  has_token: boolean;
}

export interface SetParams {
  type: "set_params";
  /** Known keys within their bounds; null or "" clears an optional one. Unknown keys are ignored. */
  patch: ThreadPatch;
  client_request_id: string;
  priority?: boolean;
}

export interface SetReasoning {
  op: "set_reasoning";
  text: string;
}

export interface SetThinkingBlocks {
  op: "set_thinking_blocks";
  blocks: JsonObject[];
}

/** Always the full merged list of the message's calls so far. */
export interface SetToolCalls {
  op: "set_tool_calls";
  tool_calls: ToolCall[];
}

export interface SetUsage {
  op: "set_usage";
  usage: Usage;
}

/** The whole of one section: workspace, chats, tasks or buddy. */
export interface SidebarEvent {
  type: "section_snapshot";
  section: "buddy" | "chats" | "tasks" | "workspace";
  status: "ready";
  snapshot: JsonObject;
}

/** One `data:` line of the foreign sidebar; `seq` counts from 0. */
export interface SidebarFrame {
  protocol_version: number;
  seq: number;
  subscription_id: string;
  event: SidebarEvent;
}

/** All that a client needs to start from here (PROTOCOL §5). `messages` is the active path. */
export interface Snapshot {
  type: "snapshot";
  thread: Thread;
  runtime: Runtime;
  messages: Message[];
  background_agents: JsonObject[];
  payloads?: PayloadAdded[];
  recent_acks?: Ack[];
}

export interface Status {
  status: "applied" | "cancelled" | "deleted";
}

/** What becomes of a running stream; removed before added. */
export interface StreamChange {
  add?: Addition[];
  remove?: string[];
}

/** At most 128 operations and 64 KiB of text (PROTOCOL §6). */
export interface StreamDelta {
  type: "stream_delta";
  message_id: string;
  ops: (AppendContent | AppendReasoning | SetReasoning | SetToolCalls | SetThinkingBlocks | AddCitation | AddServerContentBlock | SetUsage | MergeExtra)[];
}

export interface StreamFinished {
  type: "stream_finished";
  message_id: string;
  finish_reason: string;
  usage?: Usage | null;
  timings?: JsonObject | null;
}

export interface StreamStarted {
  type: "stream_started";
  message_id: string;
  run_id?: string | null;
  round?: number | null;
  model?: string | null;
  append?: boolean;
  parent_id?: string | null;
  created_at?: number | null;
}

export interface SubchatUpdate {
  type: "subchat_update";
  tool_call_id: string;
  subchat_id: string;
  attached_files?: string[];
}

/** `POST /chat`. Without `session_id` a new chat is made. `mode` is read where the operator allows it. */
export interface TextChatRequest {
  message: string;
  session_id?: string | null;
  mode?: string | null;
  on_disconnect?: "abort" | "detach" | null;
}

export interface TextPart {
  type: "text";
  text: string;
}

/** Times are Unix milliseconds. Fields made by a factory are always on the wire, the others only when set. */
export interface Thread {
  id: string;
  title?: string;
  model?: string;
  mode?: string;
  tool_use?: string;
  context_tokens_cap?: number | null;
  include_project_info?: boolean;
  checkpoints_enabled?: boolean;
  is_title_generated?: boolean;
  auto_approve_editing_tools?: boolean;
  auto_approve_dangerous_commands?: boolean;
  autonomous_no_confirm?: boolean;
  boost_reasoning?: boolean | null;
  reasoning_effort?: string | null;
  thinking_budget?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  max_tokens?: number | null;
  top_k?: number | null;
  min_p?: number | null;
  repetition_penalty?: number | null;
  seed?: number | null;
  stop?: string[] | null;
  max_history_tokens?: number | null;
  max_history_messages?: number | null;
  history_tools?: string | null;
  parallel_tool_calls?: boolean | null;
  merge_queued?: boolean | null;
  max_rounds?: number | null;
  on_limit?: string | null;
  on_abort?: string | null;
  on_deny?: string | null;
  on_owner_loss?: string | null;
  reasoning?: string | null;
  custom_instructions?: string | null;
  scope?: string[] | null;
  tools_disabled?: string[] | null;
  mcp_servers?: string[] | null;
  context?: JsonObject | null;
  metadata?: JsonObject | null;
  parent_id?: string | null;
  link_type?: string | null;
  root_chat_id?: string | null;
  owner?: string | null;
  usage?: Usage | null;
  created_at?: number | null;
  last_active?: number | null;
  leaf_id?: string | null;
  forked_from?: JsonObject | null;
  compaction?: JsonObject | null;
}

export interface ThreadDefaults {
  include_project_info: boolean;
  checkpoints_enabled: boolean;
  auto_approve_editing_tools: boolean;
  auto_approve_dangerous_commands: boolean;
}

/** What `set_params` may change, with its bounds (PROTOCOL §16). */
export interface ThreadPatch {
  title?: string;
  model?: string;
  mode?: string;
  tool_use?: string;
  context_tokens_cap?: number | null | "";
  include_project_info?: boolean;
  checkpoints_enabled?: boolean;
  is_title_generated?: boolean;
  auto_approve_editing_tools?: boolean;
  auto_approve_dangerous_commands?: boolean;
  autonomous_no_confirm?: boolean;
  boost_reasoning?: boolean | null | "";
  reasoning_effort?: "high" | "low" | "max" | "medium" | "minimal" | "none" | "xhigh" | null | "";
  thinking_budget?: number | null | "";
  temperature?: number | null | "";
  top_p?: number | null | "";
  frequency_penalty?: number | null | "";
  presence_penalty?: number | null | "";
  max_tokens?: number | null | "";
  top_k?: number | null | "";
  min_p?: number | null | "";
  repetition_penalty?: number | null | "";
  seed?: number | null | "";
  stop?: string[] | null | "";
  max_history_tokens?: number | null | "";
  max_history_messages?: number | null | "";
  history_tools?: "full" | "none" | null | "";
  parallel_tool_calls?: boolean | null | "";
  merge_queued?: boolean | null | "";
  max_rounds?: number | null | "";
  on_limit?: "ask" | "stop" | "summarize" | null | "";
  on_abort?: "discard" | "keep" | null | "";
  on_deny?: "continue" | "stop" | null | "";
  on_owner_loss?: "auto" | "continue" | "restart" | "stop" | null | "";
  reasoning?: "log" | "off" | "stream" | null | "";
  custom_instructions?: string | null | "";
  scope?: string[] | null | "";
  tools_disabled?: string[] | null | "";
  mcp_servers?: string[] | null | "";
  context?: JsonObject | null | "";
  metadata?: JsonObject | null | "";
  parent_id?: string | null | "";
  link_type?: string | null | "";
  root_chat_id?: string | null | "";
}

/** The changed parameters, flat, as they now are. null: cleared. */
export interface ThreadUpdated {
  type: "thread_updated";
  title?: string;
  model?: string;
  mode?: string;
  tool_use?: string;
  context_tokens_cap?: number | null;
  include_project_info?: boolean;
  checkpoints_enabled?: boolean;
  is_title_generated?: boolean;
  auto_approve_editing_tools?: boolean;
  auto_approve_dangerous_commands?: boolean;
  autonomous_no_confirm?: boolean;
  boost_reasoning?: boolean | null;
  reasoning_effort?: "high" | "low" | "max" | "medium" | "minimal" | "none" | "xhigh" | null;
  thinking_budget?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  max_tokens?: number | null;
  top_k?: number | null;
  min_p?: number | null;
  repetition_penalty?: number | null;
  seed?: number | null;
  stop?: string[] | null;
  max_history_tokens?: number | null;
  max_history_messages?: number | null;
  history_tools?: "full" | "none" | null;
  parallel_tool_calls?: boolean | null;
  merge_queued?: boolean | null;
  max_rounds?: number | null;
  on_limit?: "ask" | "stop" | "summarize" | null;
  on_abort?: "discard" | "keep" | null;
  on_deny?: "continue" | "stop" | null;
  on_owner_loss?: "auto" | "continue" | "restart" | "stop" | null;
  reasoning?: "log" | "off" | "stream" | null;
  custom_instructions?: string | null;
  scope?: string[] | null;
  tools_disabled?: string[] | null;
  mcp_servers?: string[] | null;
  context?: JsonObject | null;
  metadata?: JsonObject | null;
  parent_id?: string | null;
  link_type?: string | null;
  root_chat_id?: string | null;
  owner?: string;
  usage?: Usage;
  created_at?: number;
  last_active?: number;
  leaf_id?: string | null;
  forked_from?: JsonObject | null;
  compaction?: JsonObject | null;
}

/** One call of a tool by the model. `id` is unique in the chat; `index` counts within the message from 0. */
export interface ToolCall {
  id: string;
  index: number;
  function: FunctionCall;
  type?: string;
}

export interface ToolDecision {
  type: "tool_decision";
  client_request_id: string;
  priority?: boolean;
  tool_call_id?: string | null;
  accepted: boolean;
  payload_id?: string | null;
  remember?: "call" | "server" | "tool" | null;
  edited_input?: JsonObject | null;
  input_hash?: string | null;
  note?: string | null;
}

export interface ToolDecisions {
  type: "tool_decisions";
  decisions: Decision[];
  client_request_id: string;
  priority?: boolean;
}

/** A tool that this caller's models may be offered. `policy`: auto, ask, preview, client or deny. */
export interface ToolInfo {
  name: string;
  description: string;
  input_schema: JsonObject;
  source: "client" | "http" | "mcp" | "python";
  policy: "ask" | "auto" | "client" | "deny" | "preview";
  scopes: string[][];
}

/** Where a tool call stands. `index` counts calls within the run from 0; `progress` is 0..1. `status`: queued, awaiting_decision, running, progress, done, error, denied, aborted, outcome_unknown. A client that claims a client tool is named by `claimed_by`, until `claim_expires_at` (Unix milliseconds, PROTOCOL §12). */
export interface ToolStatus {
  type: "tool_status";
  tool_call_id: string;
  name: string;
  message_id: string;
  index: number;
  status: string;
  label?: string | null;
  input?: JsonObject | null;
  stage?: string | null;
  message?: string | null;
  progress?: number | null;
  data?: JsonObject | null;
  elapsed_ms?: number | null;
  claimed_by?: string | null;
  claim_expires_at?: number | null;
}

/** One try at one model. `code` is there when it failed, `detail` is what the provider said of it. */
export interface TraceAttempt {
  provider: string;
  model: string;
  asked_at_ms: number;
  first_delta_ms?: number | null;
  total_ms?: number | null;
  code?: string | null;
  detail?: string;
}

/** One model call: what was asked and what came back, before anything was cleaned. Attachments are shown as the log refers to them; `left_out` names those that the model cannot take. `settings` are the parameters that somebody has set, each `{value, layer}`. */
export interface TraceRound {
  round: number;
  message_id: string;
  model: string;
  settings: { [key: string]: JsonObject };
  attempts?: TraceAttempt[];
  system?: string;
  messages?: Message[];
  tools?: string[];
  params?: JsonObject;
  prefix?: string;
  left_out?: string[];
  text?: string;
  reasoning?: string;
  calls?: ToolCall[];
  finish_reason?: string | null;
  answered_model?: string | null;
  usage?: Usage | null;
  timings?: JsonObject | null;
  tool_runs?: TraceToolRun[];
  cut?: string[];
}

/** The summarizer was asked before `round`, for so many messages in one. `code` is there when it failed. */
export interface TraceSummary {
  round: number;
  model: string;
  covered: number;
  text: string;
  elapsed_ms: number;
  ended_at_ms: number;
  code?: string | null;
  detail?: string;
  usage?: Usage | null;
  cut?: string[];
}

/** One call as it was carried out. `input` is JSON text as executed, `output` what the model reads; a call that was aborted has none, and may have had effects. `is_abandoned`: it was told to end and did not. `cut` names the fields whose middles were left out. */
export interface TraceToolRun {
  round: number;
  tool_call_id: string;
  name: string;
  input: string;
  output: string;
  outcome: "aborted" | "done" | "error";
  is_abandoned: boolean;
  elapsed_ms: number;
  ended_at_ms: number;
  cut?: string[];
}

/** A run that has a trace. `outcome` and `ended_at` null: it goes on, or its end was not kept. Times are Unix milliseconds. */
export interface TracedRun {
  run_id: string;
  outcome: string | null;
  error: string | null;
  started_at: number | null;
  ended_at: number | null;
  rounds_count: number;
  tool_runs_count: number;
}

/** Newest first. */
export interface TracedRuns {
  runs: TracedRun[];
}

/** A chat as a foreign GUI lists it. Times are ISO 8601. */
export interface Trajectory {
  id: string;
  title: string;
  created_at: string;
  updated_at: string;
  model: string;
  mode: string;
  message_count: number;
  session_state: string;
  root_chat_id: string | null;
  total_lines_added: number;
  total_lines_removed: number;
  tasks_total: number;
  tasks_done: number;
  tasks_failed: number;
}

/** A chat as a foreign GUI reads it: its parameters and its active path. These two times are ISO 8601. */
export interface TrajectoryChat {
  id: string;
  title?: string;
  model?: string;
  mode?: string;
  tool_use?: string;
  context_tokens_cap?: number | null;
  include_project_info?: boolean;
  checkpoints_enabled?: boolean;
  is_title_generated?: boolean;
  auto_approve_editing_tools?: boolean;
  auto_approve_dangerous_commands?: boolean;
  autonomous_no_confirm?: boolean;
  boost_reasoning?: boolean | null;
  reasoning_effort?: string | null;
  thinking_budget?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  max_tokens?: number | null;
  top_k?: number | null;
  min_p?: number | null;
  repetition_penalty?: number | null;
  seed?: number | null;
  stop?: string[] | null;
  max_history_tokens?: number | null;
  max_history_messages?: number | null;
  history_tools?: string | null;
  parallel_tool_calls?: boolean | null;
  merge_queued?: boolean | null;
  max_rounds?: number | null;
  on_limit?: string | null;
  on_abort?: string | null;
  on_deny?: string | null;
  on_owner_loss?: string | null;
  reasoning?: string | null;
  custom_instructions?: string | null;
  scope?: string[] | null;
  tools_disabled?: string[] | null;
  mcp_servers?: string[] | null;
  context?: JsonObject | null;
  metadata?: JsonObject | null;
  parent_id?: string | null;
  link_type?: string | null;
  root_chat_id?: string | null;
  owner?: string | null;
  usage?: Usage | null;
  created_at: string;
  last_active?: number | null;
  leaf_id?: string | null;
  forked_from?: JsonObject | null;
  compaction?: JsonObject | null;
  updated_at: string;
  messages: Message[];
}

export interface TrajectoryList {
  items: Trajectory[];
  next_cursor: string | null;
  has_more: boolean;
  total_count: number;
}

/** A `data:` line without `seq` and `id`: it is in no log, and who comes later does not miss it. */
export type TransientEvent = {
  chat_id: string;
} & (Presence | Typing | ChatRemoved);

/** Somebody began or stopped to write. */
export interface Typing {
  type: "typing";
  typing: boolean;
  by?: string | null;
}

/** `stream_id`: the named stream of whoever types, which is not told. */
export interface TypingNotice {
  typing: boolean;
  stream_id?: string | null;
}

/** An absent field stays unchanged (`protocol.content.edited`). */
export interface UpdateMessage {
  type: "update_message";
  message_id: string;
  content?: Content | null;
  attachments?: JsonObject[] | null;
  regenerate?: boolean;
  mode?: "branch" | "in_place" | null;
  client_request_id: string;
  priority?: boolean;
}

/** Tokens of one model call, or summed over a chat. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cache_creation_input_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cost_usd?: number | null;
}

/** With `interrupt` the open run ends and this message goes before all that waits (PROTOCOL §9). */
export interface UserMessage {
  type: "user_message";
  content: Content;
  attachments?: JsonObject[];
  context_files?: JsonObject[];
  context?: JsonObject;
  interaction?: Interaction | null;
  params?: JsonObject;
  interrupt?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** One `data:` line of the native stream. Clients skip types that they do not know. */
export type WireEvent = {
  chat_id: string;
  /** Events since the snapshot that this client holds; a snapshot has 0. */
  seq: string;
} & (Ack | QueueUpdated | RuntimeUpdated | ThreadUpdated | MessageAdded | MessageUpdated | MessageRemoved | MessagesTruncated | BranchSelected | StreamStarted | StreamDelta | StreamFinished | PauseRequired | PauseCleared | IdeToolRequired | SubchatUpdate | BackgroundAgentUpdated | ProcessCompleted | ToolStatus | PayloadAdded | PayloadUpdated | ErrorHappened | BrowserFrame | BrowserStatus | BrowserClosed | BrowserTimeline | BrowserContextOversize | BrowserToolbarAction | Snapshot);
