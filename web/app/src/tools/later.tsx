/** Loads rare cards when a chat first needs them. Placeholders keep their space in the conversation. */

import type { PayloadAdded } from "threadcast-client";

import { lazyOf } from "../ui/lazy.tsx";
import css from "./calls.module.css";

const cards = () => import("./cards.tsx");

export const Agents = lazyOf(() => cards().then((all) => all.Agents));
export const Asked = lazyOf(() => cards().then((all) => all.Asked));
export const Attachments = lazyOf(() => cards().then((all) => all.Attachments));
export const CallBody = lazyOf(() => cards().then((all) => all.CallBody));
export const PayloadCard = lazyOf(() => cards().then((all) => all.PayloadCard), PayloadLine);
export const Steps = lazyOf(() => cards().then((all) => all.Steps));
export const Subchat = lazyOf(() => cards().then((all) => all.Subchat), SubchatLine);

function PayloadLine({ payload }: { payload: PayloadAdded }) {
  return <section class={css.payload} aria-busy="true"><header><h4>{payload.summary || payload.payload_type}</h4></header></section>;
}

function SubchatLine() {
  return <div class={css.below} aria-busy="true">chat of this call</div>;
}
