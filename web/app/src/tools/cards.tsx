/** What is drawn of tools only where there is some of it, fetched as one: see later.tsx. */

export { Agents } from "./agents.tsx";
export { Asked } from "./asked.tsx";
export { Attachments } from "./attachment.tsx";
export { CallBody } from "./call_body.tsx";
export { PayloadCard } from "./payload_card.tsx";
export { Subchat } from "./subchat.tsx";

