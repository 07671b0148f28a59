/** The rare cards of tools, which are loaded together: see later.tsx. */

export { Agents } from "./agents.tsx";
export { Asked } from "./asked.tsx";
export { Attachments } from "./attachment.tsx";
export { CallBody } from "./call_body.tsx";
export { PayloadCard } from "./payload_card.tsx";
export { Steps } from "./steps.tsx";
export { Subchat } from "./subchat.tsx";

