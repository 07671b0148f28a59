// Generated from the server's own structs by `python -m threadcast.api.schema`. Not edited by hand.

/** Any JSON object. */
export type JsonObject = { [key: string]: unknown };

/** Ends the open run. With `run_id` the command ends only that run; `clear_queue` also removes all waiting commands. */
export interface Abort {
  type: "abort";
  run_id?: string | null;
  clear_queue?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** The answer to the command `client_request_id`. `by` names the user who sent the command. */
export interface Ack {
  type: "ack";
  client_request_id: string;
  accepted: boolean;
  result: JsonObject;
  by?: string | null;
}

/** Appends a citation. */
export interface AddCitation {
  op: "add_citation";
  citation: JsonObject;
}

/** Appends a block of content that the provider made itself. */
export interface AddServerContentBlock {
  op: "add_server_content_block";
  block: JsonObject;
}

/** A chat to add to a running stream. `from` is an SSE id of the chat, or of a stream that contained the chat, after which the stream continues. Without a usable id the stream begins with a snapshot. */
export interface Addition {
  chat_id: string;
  from?: string;
}

/** The body of `POST /v1/agent/chat`. `context_type` is the scope: a name, or up to three names, the widest scope first. If no conversation has the `conversation_id`, the request creates the conversation. */
export interface AgentChatRequest {
  /** Any JSON. */
  mode?: unknown;
  on_disconnect?: "abort" | "detach" | null;
  message: string;
  /** Any JSON. */
  context_type: string | string[];
  context?: JsonObject | null;
  conversation_id?: string | null;
}

/** Data that an operator's agent sends to clients while it writes the message `message_id`. `data_type` is the agent's own word for its kind. Snapshots do not contain this data, and after a crash an agent may send the data again. */
export interface AgentData {
  type: "agent_data";
  message_id: string;
  data_type: string;
  data: JsonObject;
}

/** A line with a background agent. */
export interface AgentLine {
  type: "background_agent";
  agent: JsonObject;
}

/** A step of an operator's durable agent that begins, waits or ends. Events with the same `step_id` replace each other; a snapshot has the newest 100 steps of the last durable run. `kind` is step, chat, ask or sleep. `name` is the name of the step, the title of the sub-chat or the beginning of the question. `status` is running, waiting, done, failed, unknown or cancelled. `step_id` is the place of the step in the agent's function: "3.0.1" is the step 1 in the branch 0 of the gather 3. `started_at` and `until`, when a sleep ends, are Unix milliseconds. */
export interface AgentStep {
  type: "agent_step";
  run_id: string;
  step_id: string;
  kind: string;
  name: string;
  status: string;
  started_at: number;
  elapsed_ms?: number | null;
  until?: number | null;
  subchat_id?: string | null;
  error?: string | null;
}

/** Appends `text` to the content. */
export interface AppendContent {
  op: "append_content";
  text: string;
}

/** Appends `text` to the reasoning. */
export interface AppendReasoning {
  op: "append_reasoning";
  text: string;
}

/** The approval of a tool part. `approved` is absent until a person has decided. */
export interface Approval {
  id: string;
  approved?: boolean | null;
  reason?: string | null;
}

/** The tools whose calls need no approval in this chat. `mcp__SERVER__*` means all tools of that MCP server (PROTOCOL §11). */
export interface Approvals {
  tools: string[];
}

/** A part, an image without `type`, or a resource or prompt of an MCP server. */
export type Attachment = ContentPart | {
  type?: "image_url";
  image_url: {
    /** A base64 data URL, or the `url` of an upload to the same chat. */
    url: string;
    detail?: string | null;
    /** The server replaces the client's value. */
    mime?: unknown;
    /** The server replaces the client's value. */
    bytes?: unknown;
  };
} | {
  type: "mcp_resource";
  server: string;
  uri: string;
} | {
  type: "mcp_prompt";
  server: string;
  name: string;
  args?: { [key: string]: string };
};

/** A sound. */
export interface AudioPart {
  type: "input_audio";
  input_audio: InputAudio;
}

/** The present state of a background agent. Events with the same `id` replace each other. */
export interface BackgroundAgentUpdated {
  type: "background_agent_updated";
  agent: JsonObject;
}

/** A line with a blob. In the JSON, `data` is base64. */
export interface BlobLine {
  type: "blob";
  hash: string;
  mime: string;
  data: string;
}

/** A stored upload. Commands refer to the upload by `url`, or by `hash` in parts that have a field `blob`. `bytes` is its size. */
export interface BlobStored {
  url: string;
  hash: string;
  mime: string;
  bytes: number;
}

/** Fills this chat, which must be empty, with a copy of another chat up to the message `up_to_message_id`. */
export interface BranchFromChat {
  type: "branch_from_chat";
  source_chat_id: string;
  up_to_message_id: string;
  client_request_id: string;
  priority?: boolean;
}

/** The active path now ends at `leaf_id`. Readers get a snapshot instead of this event (PROTOCOL §5). */
export interface BranchSelected {
  type: "branch_selected";
  leaf_id: string;
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserClosed {
  type: "browser_closed";
}

/** Accepts a browser tool's paused call and selects the data of the browser that the call may use. */
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
  input_hash?: string | null;
  client_request_id: string;
  priority?: boolean;
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserContextOversize {
  type: "browser_context_oversize";
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserFrame {
  type: "browser_frame";
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserStatus {
  type: "browser_status";
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserTimeline {
  type: "browser_timeline";
}

/** An event of a browser tool, passed on unchanged. */
export interface BrowserToolbarAction {
  type: "browser_toolbar_action";
}

/** The capabilities of this server: the complete lists of commands, events and error codes, and the limits with their units. */
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

/** A page of chats; the chats with the newest `last_active` come first. `next_cursor` is null on the last page. */
export interface ChatList {
  items: ChatSummary[];
  has_more: boolean;
  next_cursor: string | null;
}

/** A profile. Chats select the profile by setting `mode` to its `id` or to one of its `aliases`. Chats show `greeting` and `starters` before the first message. `greeting` is "" if there is none; `starters` is null if they are not configured. `model` is the profile's own model, "" if it has none; `agents/NAME` is an operator's agent, which answers even if a chat names a model. `allows_autonomous`: the parameter `autonomous_no_confirm` has an effect (PROTOCOL §11). */
export interface ChatMode {
  id: string;
  aliases: string[];
  title: string;
  description: string;
  greeting: string;
  starters: ChatStarter[] | null;
  model: string;
  tools_count: number;
  thread_defaults: ThreadDefaults;
  ui: ModeUi;
  allows_autonomous?: boolean;
}

/** The profiles that a chat can select as its `mode`. */
export interface ChatModes {
  modes: ChatMode[];
  errors: string[];
}

/** A stream of several chats sends no more frames of this chat. `reason` is not_found (the chat was deleted or is not yours), unfoldable (this server cannot read the chat), unavailable (the chat could not be opened; add it again) or removed (as the client asked). */
export interface ChatRemoved {
  type: "chat_removed";
  reason: string;
}

/** The body of `POST /ai-sdk/chat`. `tools`, `model` and `mode` are additional keys that a page gives its transport as `body`: tools that the page carries out, and the model and profile of a new chat or message. */
export interface ChatRequest {
  id: string;
  messages: UIMessage[];
  trigger?: "regenerate-message" | "submit-message";
  messageId?: string | null;
  tools?: DeclaredTool[];
  model?: string | null;
  mode?: string | null;
}

/** The chat as it is at `position`. `id` is the value of `?from=` with which a subscription continues from here. */
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

/** A suggested first message. `model` is the model for this message; "" means the chat's model. `context` is set as the chat's parameter of this name before the message is sent; {} sets nothing. */
export interface ChatStarter {
  title: string;
  text: string;
  model: string;
  context: JsonObject;
}

/** A chat in a list. Times are Unix milliseconds. */
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

/** The whole tree at `position`: each message after its parent, siblings in the order of their creation. The active path ends at `leaf_id`. */
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

/** A message of the conversation. Texts of the roles system and developer are instructions of this request. */
export interface CompletionsMessage {
  role: "assistant" | "developer" | "system" | "tool" | "user";
  content?: string | JsonObject[] | null;
  tool_calls?: JsonObject[] | null;
  tool_call_id?: string | null;
}

/** Metadata of a request. `chat_id` names the chat; other keys are ignored. */
export interface CompletionsMetadata {
  chat_id?: string | null;
}

/** The body of `POST /v1/chat/completions`, as OpenAI defines it. `metadata.chat_id` names the chat, which may be new. */
export interface CompletionsRequest {
  /** Any JSON. */
  mode?: unknown;
  on_disconnect?: "abort" | "detach" | null;
  messages: CompletionsMessage[];
  model?: string;
  stream?: boolean | null;
  stream_options?: StreamOptions | null;
  metadata?: CompletionsMetadata | null;
  tools?: JsonObject[] | null;
  /** Any JSON. */
  tool_choice?: unknown;
  /** Any JSON. */
  n?: unknown;
  /** Any JSON. */
  store?: unknown;
  user?: string | null;
  safety_identifier?: string | null;
  /** Any JSON. */
  response_format?: unknown;
  /** Any JSON. */
  logprobs?: unknown;
  /** Any JSON. */
  modalities?: unknown;
  /** Any JSON. */
  top_logprobs?: unknown;
  /** Any JSON. */
  logit_bias?: unknown;
  /** Any JSON. */
  audio?: unknown;
  /** Any JSON. */
  prediction?: unknown;
  /** Any JSON. */
  functions?: unknown;
  /** Any JSON. */
  function_call?: unknown;
  /** Any JSON. */
  web_search_options?: unknown;
  /** Any JSON. */
  verbosity?: unknown;
  max_completion_tokens?: number | null | "";
  max_tokens?: number | null | "";
  temperature?: number | null | "";
  top_p?: number | null | "";
  frequency_penalty?: number | null | "";
  presence_penalty?: number | null | "";
  reasoning_effort?: "high" | "low" | "max" | "medium" | "minimal" | "none" | "xhigh" | null | "";
  parallel_tool_calls?: boolean | null | "";
  seed?: number | null | "";
  stop?: string[] | null | string;
  top_k?: number | null | "";
  min_p?: number | null | "";
  repetition_penalty?: number | null | "";
}

/** Text, or parts. Parts of the older form {m_type, m_content} are accepted too. */
export type Content = string | ContentPart[];

export type ContentPart = {
  type: "text";
  text: string;
} | {
  type: "image_url";
  image_url: {
    /** A base64 data URL, or the `url` of an upload to the same chat. */
    url: string;
    detail?: string | null;
    /** The server replaces the client's value. */
    mime?: unknown;
    /** The server replaces the client's value. */
    bytes?: unknown;
  };
} | {
  type: "input_audio";
  input_audio: {
    data?: string | null;
    format: string;
    blob?: string | null;
    /** The server replaces the client's value. */
    bytes?: unknown;
  };
} | {
  type: "file";
  name: string;
  mime: string;
  data?: string | null;
  text?: string | null;
  blob?: string | null;
  text_blob?: string | null;
  /** The server replaces the client's value. */
  bytes?: unknown;
} | {
  m_type: string;
  m_content: string;
};

export interface ContextEntry {
  description: string;
  value: string;
}

/** `content` is read if there is no `file_content`. */
export interface ContextFile {
  file_content?: string;
}

/** Token counts of the model's context window: `used` by the last call, and the `total` size. */
export interface ContextUse {
  used: number;
  total?: number | null;
}

/** Continues the last answer of the active path, or continues after the results of the answer's tool calls. */
export interface ContinueMessage {
  type: "continue_message";
  message_id: string;
  client_request_id: string;
  priority?: boolean;
}

/** The conversation of a request, as an object. */
export interface ConversationName {
  id: string;
}

/** The body of `POST /v1/conversations`. */
export interface ConversationRequest {
  items?: JsonObject[] | null;
  metadata?: { [key: string]: string } | null;
}

/** A decision about one paused tool call or preview, which `tool_call_id` or `payload_id` names. */
export interface Decision {
  tool_call_id?: string | null;
  accepted: boolean;
  payload_id?: string | null;
  remember?: "call" | "server" | "tool" | null;
  edited_input?: JsonObject | null;
  input_hash?: string | null;
  note?: string | null;
}

/** A tool that the sender of a message carries out (PROTOCOL §12). `input_schema` is the JSON Schema of an object; {} allows any object. */
export interface DeclaredTool {
  name: string;
  description: string;
  input_schema?: JsonObject;
}

/** Edits or moves the waiting command `target_request_id`. An absent field stays unchanged. `interrupt` ends the open run and starts this command next. */
export interface EditQueued {
  type: "edit_queued";
  target_request_id: string;
  content?: Content | null;
  attachments?: Attachment[] | null;
  position?: number | null;
  interrupt?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** An error during a run. `message` is a fixed sentence for users (ERR-2). For a failed model call, `details` has `reason`, `status`, `retry_at` and `model` (PROTOCOL §8), and `task` is "title" if the call was for a title. */
export interface ErrorHappened {
  type: "error";
  code: string;
  message: string;
  fatal: boolean;
  run_id?: string | null;
  details?: JsonObject | null;
}

/** The first line of an export. A reader uses the counts to detect a file that was cut. */
export interface ExportHeader {
  type: "chat";
  format: number;
  chat_id: string;
  leaf_id: string | null;
  message_count: number;
  payload_count: number;
  agent_count: number;
  blob_count?: number;
  thread: ThreadChanges;
}

/** A chat whose import was refused, with the code and the sentence of the refusal. */
export interface FailedImport {
  id: string;
  code: string;
  error: string;
}

/** The body of an error response, the same for all endpoints. `path` is a JSON Pointer into the request's body. `status` and `error` repeat the code and the sentence under the keys that older clients read. With the code `gone`, `first` is the earliest position that can still be read. */
export interface Failure {
  detail: string;
  code: "aborted" | "already_claimed" | "auth_failed" | "bad_request" | "cancelled" | "conflict" | "connection" | "context_overflow" | "crash_loop" | "empty_answer" | "forbidden" | "gone" | "id_taken" | "idempotency_mismatch" | "internal" | "interrupted" | "invalid_content" | "llm_error" | "max_tool_rounds" | "no_pending_decision" | "not_found" | "not_implemented" | "other_approver_needed" | "poison" | "queue_full" | "rate_limited" | "storage_full" | "store_full" | "stream_error" | "timeout" | "too_large" | "tool_error" | "unauthorized" | "unavailable" | "unknown_mode";
  path?: string | null;
  status?: string | null;
  error?: string | null;
  first?: number | null;
}

/** One `data:` line of the feed. `seq` counts from the snapshot, whose `seq` is 0. */
export interface FeedItem {
  seq: string;
  type: "chat_removed" | "chat_updated" | "feed_snapshot";
  chats?: ChatSummary[];
  has_more?: boolean;
  chat?: ChatSummary;
  chat_id?: string;
}

/** A file: its base64 `data`, its extracted `text`, or the hash of a blob with its bytes (`blob`) or its text (`text_blob`). `bytes` is the size of the blob. */
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

/** The tool that a model calls. `arguments` is the model's JSON text, unchanged. */
export interface FunctionCall {
  name: string;
  arguments: string;
}

/** The health of a process. `ready` means that the process accepts commands. `detail` is the reason why the process is not ready, `store` the state of the store. `primary` is the store's address behind Sentinel. For a Cluster, `nodes` are its primaries, and `away` has a sentence for each primary that accepts no writes at present; `store` is then `partly`. `workers` is `late` while chats wait too long for a worker; `detail` then says how many chats wait and how long. */
export interface Health {
  status: "draining" | "ok" | "ready" | "starting" | "unavailable";
  store?: string | null;
  detail?: string | null;
  primary?: string | null;
  nodes?: string[];
  away?: string[];
  workers?: string | null;
}

/** A tool call that a client must carry out. Times are Unix milliseconds. */
export interface IdeCall {
  tool_call_id: string;
  tool_name: string;
  args: JsonObject;
  deadline_at?: number | null;
  claimed_by?: string | null;
  claim_expires_at?: number | null;
}

/** Claims a tool call for one client. `claimer` names the client, which can renew its claim with the same name. Without `claimer` no claim can be renewed. */
export interface IdeToolClaim {
  type: "ide_tool_claim";
  tool_call_id: string;
  claimer?: string | null;
  client_request_id: string;
  priority?: boolean;
}

/** A client must carry out this tool call before `deadline_at` (Unix milliseconds). */
export interface IdeToolRequired {
  type: "ide_tool_required";
  tool_call_id: string;
  tool_name: string;
  args: JsonObject;
  deadline_at?: number | null;
}

/** The result of a tool call that the client has carried out. The server sets `attachments` to the images that it finds in `content`; values from clients are replaced. */
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

/** An image. */
export interface ImagePart {
  type: "image_url";
  image_url: ImageUrl;
}

/** An image. `url` is a data URL or the URL of a blob. For a blob, `mime` and `bytes` are its type and size (PROTOCOL §10). */
export interface ImageUrl {
  url: string;
  detail?: string | null;
  mime?: string | null;
  bytes?: number | null;
}

/** The result for each chat of an import, by id, in the order of the body. `skipped` chats existed and were not changed. The import of `accepted` chats is stored, but had not taken effect when the answer was sent. */
export interface ImportReport {
  imported: string[];
  skipped: string[];
  accepted: string[];
  failed: FailedImport[];
}

/** A sound. `data` is the base64 of the sound. If the sound is stored as a blob, `data` is empty, `blob` is the hash of the blob and `bytes` its size. */
export interface InputAudio {
  data?: string;
  format?: string;
  blob?: string | null;
  bytes?: number | null;
}

/** The kind of the user's input, if it was not typed text (CMD-18). */
export interface Interaction {
  type: "action_selected" | "form_submitted" | "text" | "value_selected";
  action?: string | null;
  data?: JsonObject | null;
}

/** An MCP server that did not answer, and the reason. */
export interface McpFailure {
  server: string;
  error: string;
}

/** A request, a notification (without `id`), or the client's answer to a request of this server (without `method`). */
export interface McpMessage {
  jsonrpc: "2.0";
  id?: string | number | null;
  method?: string;
  params?: JsonObject;
  result?: JsonObject | null;
  error?: JsonObject | null;
}

/** A prompt of an MCP server. A message attaches it as `{type: "mcp_prompt", server, name, args}`. */
export interface McpPrompt {
  server: string;
  name: string;
  description: string;
  arguments: McpPromptArgument[];
}

/** An argument of a prompt. */
export interface McpPromptArgument {
  name: string;
  description: string;
  required: boolean;
}

/** The prompts of the configured MCP servers. */
export interface McpPrompts {
  prompts: McpPrompt[];
  errors: McpFailure[];
}

/** A resource of an MCP server. A message attaches it as `{type: "mcp_resource", server, uri}`. */
export interface McpResource {
  server: string;
  uri: string;
  name: string;
  description: string;
  mime_type: string;
}

/** The resources of the configured MCP servers that messages can attach. */
export interface McpResources {
  resources: McpResource[];
  errors: McpFailure[];
}

/** Merges `extra` into the message's `extra`: each top-level key replaces the old one. */
export interface MergeExtra {
  op: "merge_extra";
  extra: JsonObject;
}

/** A message of a chat. Times are Unix milliseconds. */
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

/** A message at `index` of the active path: appended, inserted, or the final version of a streamed message. */
export interface MessageAdded {
  type: "message_added";
  message: Message;
  index: number;
}

/** A line with a message. */
export interface MessageLine {
  type: "message";
  message: Message;
}

/** The message `message_id` and all messages below it were deleted. */
export interface MessageRemoved {
  type: "message_removed";
  message_id: string;
}

/** A new version of the message `message_id`. */
export interface MessageUpdated {
  type: "message_updated";
  message_id: string;
  message: Message;
}

/** The active path was cut to `from_index` messages. The messages after the cut remain in the tree. */
export interface MessagesTruncated {
  type: "messages_truncated";
  from_index: number;
}

/** The position of a profile in a GUI's list. */
export interface ModeUi {
  order: number;
  tags: string[];
}

/** A model that chats may use. `n_ctx` is the size of its context window in tokens. */
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

/** A model in OpenAI's list. `created` is always 0, because providers do not report the time. */
export interface OpenAIModel {
  id: string;
  owned_by: string;
  object?: string;
  created?: number;
}

/** All models of the server. */
export interface OpenAIModels {
  data: OpenAIModel[];
  object?: string;
}

/** The body of `POST /api/chat/stream`. `current_page`, `active_tab` and `subtab` of the context form the scope. Their values need not be declared scopes. */
export interface PageChatRequest {
  /** Any JSON. */
  mode?: unknown;
  on_disconnect?: "abort" | "detach" | null;
  message: string;
  context?: JsonObject | null;
  interaction_type?: string | null;
  conversation_id?: string | number | null;
}

/** The value of a parameter, and the layer that sets it. */
export interface ParamValue {
  value: unknown;
  layer: "command" | "profile" | "server" | "thread";
}

/** The effective parameters of a chat, under the keys of `set_params`. */
export interface Params {
  params: { [key: string]: ParamValue };
}

/** The open run no longer waits for a decision. */
export interface PauseCleared {
  type: "pause_cleared";
}

/** A reason why a run waits for a person. `input_hash` binds the decision to the arguments that were shown, and to the tool's definition. With `hides_input`, `input` is empty on the stream; `GET /v1/chats/{chat_id}/questions` returns the arguments. `change` is present if the tool was always allowed, but differs from the tool that was allowed. With `once`, the next call of the tool asks again, even if the decision has `remember`. `approver` is `another` if only a caller other than the requester may accept. With the type `question`, `question` is the question to a person, and `tool_call_id` is the question's id; `tool_name` is the tool that asks, or empty. */
export interface PauseReason {
  type: string;
  tool_name: string;
  tool_call_id: string;
  command?: string;
  rule?: string;
  integr_config_path?: string | null;
  input?: JsonObject;
  input_hash?: string;
  hides_input?: boolean;
  change?: ToolChange;
  once?: boolean;
  approver?: string;
  question?: Question;
}

/** The open run waits for a decision about each of these `reasons`, which replace all earlier reasons. */
export interface PauseRequired {
  type: "pause_required";
  reasons: PauseReason[];
}

/** A new payload of a message. */
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

/** A line with a payload. */
export interface PayloadLine {
  type: "payload";
  /** A new payload of a message. */
  payload: {
    type?: "payload_added";
    payload_id: string;
    payload_type: string;
    data: JsonObject;
    summary: string;
    source: "llm" | "preview" | "tool";
    message_id: string;
    tool_call_id?: string | null;
    approval?: "accepted" | "commit_failed" | "committed" | "outcome_unknown" | "pending" | "rejected" | null;
    by?: string | null;
    input_hash?: string | null;
    unregistered?: boolean;
  };
}

/** A type of payload that a profile can show besides text. `schema` is the JSON Schema of the payload's data. An empty list of `scopes` means all scopes. */
export interface PayloadTypeInfo {
  name: string;
  description: string;
  schema: JsonObject;
  scopes: string[][];
}

/** A new version of the payload `payload_id`. */
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

/** `count` is the number of streams that watch the chat and asked for presence, including this stream. `names` are the names of their users. */
export interface Presence {
  type: "presence";
  count: number;
  names?: string[] | null;
}

/** A process that a tool had started has ended. `exit_code` is null if the process was lost. */
export interface ProcessCompleted {
  type: "process_completed";
  process_id: string;
  status: string;
  exit_code: number | null;
  short_description: string;
  mode: string;
}

/** A provider of models. */
export interface ProviderInfo {
  name: string;
  display_name: string;
  enabled: boolean;
  readonly: boolean;
  has_credentials: boolean;
  status: string;
  model_count: number;
}

/** The configured providers. */
export interface Providers {
  providers: ProviderInfo[];
}

/** A question to a person (PROTOCOL §11). `options` are the allowed answers, `schema` is the JSON Schema of the answer; a question has at most one of both. Without both, the answer is any text. */
export interface Question {
  text: string;
  options?: string[];
  schema?: JsonObject | null;
}

/** The answer to one question of a chat. `input_hash` is the hash that the question contains. */
export interface QuestionAnswer {
  tool_call_id: string;
  accepted: boolean;
  input_hash: string;
}

/** The questions that a paused run asks, with the arguments that the stream does not show (PROTOCOL §11). `input` is empty if the question was asked by a version of the server that kept no arguments. */
export interface Questions {
  questions: PauseReason[];
}

/** The waiting commands after a change of the queue. */
export interface QueueUpdated {
  type: "queue_updated";
  queue_size: number;
  queued_items: QueuedItem[];
}

/** A waiting command for display: a `preview` of at most 120 characters, and at most 8,192 of its `content`. */
export interface QueuedItem {
  client_request_id: string;
  priority: boolean;
  command_type: string;
  preview: string;
  content: string;
}

/** An answer as the model wrote it, and the number of suggested actions that were removed because the configuration does not declare them (PAY-6). */
export interface RawAnswer {
  text: string;
  dropped_actions_count?: number;
}

/** The request's parameters for reasoning. */
export interface Reasoning {
  effort?: "high" | "low" | "max" | "medium" | "minimal" | "none" | "xhigh" | null;
}

/** The outcome of a posted command. `accepted` and `result` are those of the command's final ack, if the request waited for it; `status` is then applied, aborted or refused. */
export interface Receipt {
  status: "aborted" | "accepted" | "applied" | "duplicate" | "refused";
  accepted?: boolean | null;
  result?: JsonObject | null;
}

/** Generates a new answer. `message_id` is the answer to replace, or the user message to answer. Without `message_id`, the last answer of the path is generated again. */
export interface Regenerate {
  type: "regenerate";
  message_id?: string | null;
  model?: string | null;
  client_request_id: string;
  priority?: boolean;
}

/** Deletes a message and all messages below it. `regenerate` then asks for a new answer. */
export interface RemoveMessage {
  type: "remove_message";
  message_id: string;
  regenerate?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** The body of `POST /v1/responses`. `conversation` is a chat. */
export interface ResponseRequest {
  input: string | JsonObject[];
  model?: string | null;
  instructions?: string | null;
  stream?: boolean | null;
  background?: boolean | null;
  store?: boolean | null;
  conversation?: string | ConversationName | null;
  previous_response_id?: string | null;
  metadata?: { [key: string]: string } | null;
  tools?: JsonObject[];
  /** Any JSON. */
  tool_choice?: unknown;
  parallel_tool_calls?: boolean | null;
  temperature?: number | null;
  top_p?: number | null;
  max_output_tokens?: number | null;
  reasoning?: Reasoning | null;
  text?: JsonObject | null;
  /** Any JSON. */
  prompt?: unknown;
}

/** Fills this chat, which must be empty, with `messages` that a client has kept. */
export interface RestoreMessages {
  type: "restore_messages";
  messages: RestoredMessage[];
  client_request_id: string;
  priority?: boolean;
}

/** A message that a client sends back. Keys that are not listed here are ignored. */
export interface RestoredMessage {
  citations?: JsonObject[] | null;
  content?: string | (TextPart | ImagePart | AudioPart | FilePart & ContentPart)[] | null;
  extra?: JsonObject | null;
  message_id?: string | null;
  model?: string | null | null;
  role: string;
  server_content_blocks?: JsonObject[] | null;
  thinking_blocks?: JsonObject[] | null;
  tool_call_id?: string | null | null;
  tool_calls?: ({
    function: FunctionCall;
  })[] | null;
  tool_failed?: boolean | null | null;
  usage?: Usage | null | null;
}

/** The answer to one interrupt. */
export interface ResumeEntry {
  interruptId: string;
  status: "cancelled" | "resolved";
  payload?: unknown;
}

/** Replaces the message at `index` of the active path, and all messages after it, by a new message of the user. `prune` also deletes the replaced messages from the tree. Without `tools`, the new message has the tools of the message at `index`. `params` apply to this run alone, as in `user_message`. */
export interface RetryFromIndex {
  type: "retry_from_index";
  index: number;
  content: Content;
  attachments?: Attachment[];
  prune?: boolean;
  tools?: DeclaredTool[] | null;
  params?: JsonObject;
  client_request_id: string;
  priority?: boolean;
}

/** The body of `POST /ag-ui`. */
export interface RunInput {
  threadId: string;
  runId: string;
  messages: SentMessage[];
  protocolVersion?: string | null;
  parentRunId?: string | null;
  state?: unknown;
  tools?: SentTool[] | null;
  context?: ContextEntry[] | null;
  forwardedProps?: unknown;
  resume?: ResumeEntry[] | null;
}

/** The trace of a run. `scope` is the run's scope in its profile, and `params` are the parameters of its command. `raw_answers` has the answers as the model wrote them, by message id, each with the number of suggested actions that were dropped. */
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
  operations?: TraceOperation[];
}

/** The present activity of the chat (PROTOCOL §8). `tools` has the latest `tool_status` of each open tool call; `agent_steps` has the latest `agent_step` of each step of the last durable run, also when that run has ended. */
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
  waits_for?: string | null;
  agent_steps?: AgentStep[];
}

/** The complete state of the run. A field that is absent here is unset, even if an earlier event has set it. `state` is defined in PROTOCOL §7. After the end of a run, `outcome` is complete, error, aborted, limit or interrupted. `waits_for` is the reason why an open run does not continue at present: "runs_at_once" means that the caller already has the maximum number of concurrent runs. */
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
  waits_for?: string | null;
}

/** Moves the active path to the message `message_id` and from there to its newest leaf. */
export interface SelectBranch {
  type: "select_branch";
  message_id: string;
  client_request_id: string;
  priority?: boolean;
}

export interface SentCall {
  id: string;
  function: SentFunction;
}

export interface SentFunction {
  name: string;
  arguments?: string;
}

/** A message in the client's form. `content` is read when it is needed, because its type depends on the role. */
export interface SentMessage {
  id: string;
  role: string;
  content?: unknown;
  toolCallId?: string;
  error?: string | null;
  toolCalls?: SentCall[] | null;
}

/** A tool that the client carries out. `parameters` is a JSON Schema. */
export interface SentTool {
  name: string;
  description?: string;
  parameters?: JsonObject | null;
}

/** The identity of the caller. `has_token` means that the server identifies callers by tokens; without tokens every caller is `local`. */
export interface Session {
  principal: string;
  permissions: string[];
  roles: string[];
  has_token: boolean;
}

/** Sets parameters of the thread. `patch` has the new values; null clears a parameter. */
export interface SetParams {
  type: "set_params";
  /** Known keys within their bounds; null or "" clears an optional one. Unknown keys are ignored. */
  patch: ThreadPatch;
  client_request_id: string;
  priority?: boolean;
}

/** Replaces the reasoning by `text`. */
export interface SetReasoning {
  op: "set_reasoning";
  text: string;
}

/** Replaces the thinking blocks. */
export interface SetThinkingBlocks {
  op: "set_thinking_blocks";
  blocks: JsonObject[];
}

/** Replaces the message's tool calls by the complete list of its calls so far. */
export interface SetToolCalls {
  op: "set_tool_calls";
  tool_calls: ToolCall[];
}

/** Replaces the token counts. */
export interface SetUsage {
  op: "set_usage";
  usage: Usage;
}

/** The whole content of one section; the sections are workspace, chats, tasks and buddy. */
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

/** The data from which a client starts (PROTOCOL §5). `messages` are those of the active path, root first. */
export interface Snapshot {
  type: "snapshot";
  thread: Thread;
  runtime: Runtime;
  messages: Message[];
  background_agents: JsonObject[];
  payloads?: PayloadAdded[];
  recent_acks?: Ack[];
}

/** The outcome of a request in one word. */
export interface Status {
  status: "applied" | "cancelled" | "deleted";
}

/** A change of a running stream. Chats are removed before others are added. */
export interface StreamChange {
  add?: Addition[];
  remove?: string[];
}

/** Changes of the message that a model is writing: at most 128 operations and 64 KiB of text (PROTOCOL §6). */
export interface StreamDelta {
  type: "stream_delta";
  message_id: string;
  ops: (AppendContent | AppendReasoning | SetReasoning | SetToolCalls | SetThinkingBlocks | AddCitation | AddServerContentBlock | SetUsage | MergeExtra)[];
}

/** The model has finished writing the message `message_id`. */
export interface StreamFinished {
  type: "stream_finished";
  message_id: string;
  finish_reason: string;
  usage?: Usage | null;
  timings?: JsonObject | null;
}

/** Options of a stream. With `include_usage`, the last chunk has the numbers of tokens. `include_obfuscation` has no effect. */
export interface StreamOptions {
  include_usage?: boolean;
  include_obfuscation?: boolean;
}

/** A model begins to write the message `message_id`. With `append` it continues an existing message. */
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

/** The tool call `tool_call_id` has started the chat `subchat_id`. */
export interface SubchatUpdate {
  type: "subchat_update";
  tool_call_id: string;
  subchat_id: string;
  attached_files?: string[];
}

/** The body of `POST /chat`. Without `session_id` the request creates a chat. */
export interface TextChatRequest {
  /** Any JSON. */
  mode?: unknown;
  on_disconnect?: "abort" | "detach" | null;
  message: string;
  session_id?: string | null;
}

/** Text. */
export interface TextPart {
  type: "text";
  text: string;
}

/** The parameters and properties of a chat. Times are Unix milliseconds. Fields with a default factory are always encoded, other fields only when they are set. */
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
  on_client_timeout?: string | null;
  on_deny?: string | null;
  on_owner_loss?: string | null;
  reasoning?: string | null;
  temporary?: boolean | null;
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

/** The changed keys of a thread with their new values: keys that a patch may change, and keys that only the server changes. Old logs contain values within earlier bounds, so the bounds of `ThreadPatch` may be widened, never narrowed. */
export interface ThreadChanges {
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
  on_client_timeout?: "continue" | "stop" | null;
  on_deny?: "continue" | "stop" | null;
  on_owner_loss?: "auto" | "continue" | "restart" | "stop" | null;
  reasoning?: "log" | "off" | "stream" | null;
  temporary?: boolean | null;
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

/** The default parameters of a new chat, under the names that foreign GUIs request. */
export interface ThreadDefaults {
  include_project_info: boolean;
  checkpoints_enabled: boolean;
  auto_approve_editing_tools: boolean;
  auto_approve_dangerous_commands: boolean;
}

/** The parameters that `set_params` may change, with their bounds (PROTOCOL §16). */
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
  on_client_timeout?: "continue" | "stop" | null | "";
  on_deny?: "continue" | "stop" | null | "";
  on_owner_loss?: "auto" | "continue" | "restart" | "stop" | null | "";
  reasoning?: "log" | "off" | "stream" | null | "";
  temporary?: boolean | null | "";
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

/** The changed parameters with their new values, as flat keys. null means that the parameter was cleared. */
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
  on_client_timeout?: "continue" | "stop" | null;
  on_deny?: "continue" | "stop" | null;
  on_owner_loss?: "auto" | "continue" | "restart" | "stop" | null;
  reasoning?: "log" | "off" | "stream" | null;
  temporary?: boolean | null;
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

/** One call of a tool by the model. `id` is unique in the chat; `index` counts the calls of the message from 0. */
export interface ToolCall {
  id: string;
  index: number;
  function: FunctionCall;
  type?: string;
}

/** How a tool differs from the tool that a permission was given for (PROTOCOL §11). `kind` is `changed`, `new` or `unrecorded`. `before` is the definition that was approved; it is absent if the server does not have it. `now` is absent if the present definition is too long. */
export interface ToolChange {
  kind: string;
  before?: ToolDefinition | null;
  now?: ToolDefinition | null;
}

/** Decides about one paused tool call or preview, which `tool_call_id` or `payload_id` names. */
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

/** Decides about several paused tool calls and previews at once. */
export interface ToolDecisions {
  type: "tool_decisions";
  decisions: Decision[];
  client_request_id: string;
  priority?: boolean;
}

/** A tool as models and people read it: its description, and the JSON Schema of its arguments. */
export interface ToolDefinition {
  description: string;
  input_schema: JsonObject;
}

/** A tool that can be offered to models in this caller's chats. `policy` is auto, ask, preview, client or deny. */
export interface ToolInfo {
  name: string;
  description: string;
  input_schema: JsonObject;
  source: "python" | "mcp" | "http" | "client" | "agent";
  policy: "ask" | "auto" | "client" | "deny" | "preview";
  scopes: string[][];
}

/** The status of a tool call. `index` counts the calls of the run from 0; `progress` is a number from 0 to 1. `status` is queued, awaiting_decision, running, progress, done, error, denied, aborted or outcome_unknown. `claimed_by` names the client that has claimed the call of a client tool; the claim ends at `claim_expires_at` (Unix milliseconds, PROTOCOL §12). */
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

/** One attempt to call a model. A failed attempt has a `code`; `detail` is the provider's explanation. */
export interface TraceAttempt {
  provider: string;
  model: string;
  asked_at_ms: number;
  first_delta_ms?: number | null;
  total_ms?: number | null;
  code?: string | null;
  detail?: string;
}

/** An operation of a durable agent that has ended: `kind` is `step`, `call`, `chat`, `ask`, `sleep` or `answer`, and `outcome` is `done`, `failed`, `unknown` or `cancelled`. `step_id` equals the `step_id` of the event `agent_step`. `value` is the result as JSON text, at most 2,000 characters of it. `error` is the bare name of the error, and `detail` its message. */
export interface TraceOperation {
  step_id?: string;
  kind?: string;
  name?: string;
  outcome?: string;
  value?: string;
  elapsed_ms?: number;
  ended_at_ms?: number;
  error?: string | null;
  detail?: string;
}

/** One model call: the request, and the answer as it was before the server cleaned it. Attachments are shown as references, as in the log; `left_out` names the attachments that the model cannot read. `settings` are the parameters that have been set, each as `{value, layer}`. `cut` also contains `messages` if a message of the request has been changed or removed in the chat since the call. */
export interface TraceRound {
  round: number;
  message_id?: string;
  model?: string;
  settings?: { [key: string]: JsonObject };
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

/** A call of the summarizer before `round`, which summarized the first `covered` messages. A failed call has a `code`. */
export interface TraceSummary {
  round: number;
  covered: number;
  elapsed_ms: number;
  ended_at_ms: number;
  model?: string;
  text?: string;
  code?: string | null;
  detail?: string;
  usage?: Usage | null;
  cut?: string[];
}

/** One tool call as it was executed. `input` is the JSON text that the tool received, `output` the text that the model reads. An aborted call has no output, though it may have had effects. If `is_abandoned` is true, the tool was cancelled but did not end. `cut` names the fields whose middle was left out. If it contains `all`, only numbers were stored, and all texts have their default values. */
export interface TraceToolRun {
  round: number;
  is_abandoned: boolean;
  elapsed_ms: number;
  ended_at_ms: number;
  tool_call_id?: string;
  name?: string;
  input?: string;
  output?: string;
  outcome?: "aborted" | "done" | "error" | null;
  cut?: string[];
}

/** A run that has a trace. `outcome` and `ended_at` are null while the run is open, and if the end of the run was not stored. Times are Unix milliseconds. */
export interface TracedRun {
  run_id: string;
  outcome: string | null;
  error: string | null;
  started_at: number | null;
  ended_at: number | null;
  rounds_count: number;
  tool_runs_count: number;
  operations_count?: number;
}

/** The runs of a chat that have a trace, newest first. */
export interface TracedRuns {
  runs: TracedRun[];
}

/** A chat in the list of a foreign GUI. Times are ISO 8601. The counts of tasks and lines are always 0. */
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

/** A chat as a foreign GUI reads it: its parameters and its active path. `created_at` and `updated_at` are ISO 8601. */
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
  on_client_timeout?: string | null;
  on_deny?: string | null;
  on_owner_loss?: string | null;
  reasoning?: string | null;
  temporary?: boolean | null;
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

/** One page of chats. `total_count` is the number of all chats of the caller. */
export interface TrajectoryList {
  items: Trajectory[];
  next_cursor: string | null;
  has_more: boolean;
  total_count: number;
}

/** A `data:` line without `seq` and `id`. It is not in the log, and later readers do not need it. */
export type TransientEvent = {
  chat_id: string;
} & (Presence | Typing | ChatRemoved);

/** A user began or stopped to type. */
export interface Typing {
  type: "typing";
  typing: boolean;
  by?: string | null;
}

/** Reports that the user began or stopped to type. `stream_id` is the named stream of this user, which gets no notice; with "" all streams get the notice. */
export interface TypingNotice {
  typing: boolean;
  stream_id?: string;
}

/** A message in the form that pages keep. */
export interface UIMessage {
  id: string;
  role: "assistant" | "system" | "user";
  parts: UIPart[];
}

/** A part of a UI message. Only the fields of texts, files and tools are read. */
export interface UIPart {
  type: string;
  text?: string | null;
  url?: string | null;
  mediaType?: string | null;
  filename?: string | null;
  toolCallId?: string;
  state?: string | null;
  output?: unknown;
  errorText?: string | null;
  approval?: Approval | null;
}

/** Edits a message. An absent field stays unchanged. `branch` adds the edited message as a sibling. `tools` are for messages of the user, as in `user_message`. */
export interface UpdateMessage {
  type: "update_message";
  message_id: string;
  content?: Content | null;
  attachments?: Attachment[] | null;
  regenerate?: boolean;
  mode?: "branch" | "in_place" | null;
  tools?: DeclaredTool[] | null;
  client_request_id: string;
  priority?: boolean;
}

/** Token counts of one model call, or their sums over a chat. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cache_creation_input_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cost_usd?: number | null;
}

/** Adds a message of the user and starts a run. `interrupt` ends the open run and puts this message before all waiting commands (PROTOCOL §9). `tools` are offered in this run beside the server's tools; a client answers their calls. */
export interface UserMessage {
  type: "user_message";
  content: Content;
  attachments?: Attachment[];
  context_files?: ContextFile[];
  context?: JsonObject;
  interaction?: Interaction | null;
  /** Parameters of the run that this message begins, as `set_params` takes them. */
  params?: ThreadPatch;
  tools?: DeclaredTool[];
  interrupt?: boolean;
  client_request_id: string;
  priority?: boolean;
}

/** One `data:` line of the native stream. Clients skip types that they do not know. */
export type WireEvent = {
  chat_id: string;
  /** Events since the snapshot that this client holds; a snapshot has 0. */
  seq: string;
} & (Ack | QueueUpdated | RuntimeUpdated | ThreadUpdated | MessageAdded | MessageUpdated | MessageRemoved | MessagesTruncated | BranchSelected | StreamStarted | StreamDelta | StreamFinished | PauseRequired | PauseCleared | IdeToolRequired | SubchatUpdate | BackgroundAgentUpdated | AgentData | AgentStep | ProcessCompleted | ToolStatus | PayloadAdded | PayloadUpdated | ErrorHappened | BrowserFrame | BrowserStatus | BrowserClosed | BrowserTimeline | BrowserContextOversize | BrowserToolbarAction | Snapshot);
