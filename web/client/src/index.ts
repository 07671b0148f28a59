/** The public names of the package. */

export { Client, connect, type Options } from "./client.js";
export { Chat, type ChatEvent, type Sendable } from "./chat.js";
export type { Connection, Happening } from "./connection.js";
export { RETRY_POLICY, type RetryPolicy } from "./backoff.js";
export { Closed, isSignedOut, OutboxFull, Refused, ThreadcastError, Unreachable } from "./errors.js";
export { failureOf, reasoningMsOf, type Failure } from "./failures.js";
export { NO_CHATS, type ChatsList } from "./feed.js";
export { newId } from "./ids.js";
export { MemoryOutbox, StorageOutbox, type Held, type Outbox, WITHDRAWN } from "./outbox.js";
export { reduce, textOf } from "./reducer.js";
export { activePath, AT_REST, emptyState, isAtRest, snapshotOf, stateFromSnapshot, type ChatState } from "./state.js";
export type { Sent } from "./sent.js";
export type { Handler, ToolAnswer } from "./tool_calls.js";
export type { Token } from "./wire.js";
export type * from "./types.js";
