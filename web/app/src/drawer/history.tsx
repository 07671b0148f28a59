/** Time travel: the chat as it was at an earlier position, chosen on a slider or played. */

import { useLayoutEffect, useRef } from "preact/hooks";

import { live, state } from "../state/session.ts";
import { IconButton } from "../ui/icon.tsx";
import { clockOf, momentOf } from "./play.ts";
import { firstHeld, goTo, isPlaying, play, shownAt, speed, wantedAt } from "./travel.ts";
import { comeBack } from "./way.tsx";
import css from "./history.module.css";


export { begin } from "./travel.ts";

const SPEEDS = ["slow", "fast", "faster"];

export function Journey() {
  const slider = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => slider.current?.focus(), []);
  const last = live.value.position;
  const moment = momentOf(state.value);
  return (
    <section class={css.history} aria-label="Time travel">
      <p class={css.when}>
        As it was at position {shownAt.value} of {last}
        {moment !== null && <>, <time>{clockOf(moment, Date.now())}</time></>}
      </p>
      <div class={css.way}>
        <IconButton
          name={isPlaying.value ? "stop" : "play"}
          label={isPlaying.value ? "Stop playing" : "Play from here"}
          onClick={() => void play()}
        />
        <IconButton name="back" label="One position back" disabled={wantedAt.value <= firstHeld.value} onClick={() => goTo(wantedAt.value - 1)} />
        <input
          ref={slider}
          type="range"
          aria-label="Position"
          min={firstHeld.value}
          max={last}
          step={1}
          value={wantedAt.value}
          onInput={(event) => {
            isPlaying.value = false;
            goTo(event.currentTarget.valueAsNumber);
          }}
        />
        <IconButton name="forward" label="One position forward" disabled={wantedAt.value >= last} onClick={() => goTo(wantedAt.value + 1)} />
        <select aria-label="Speed" value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value))}>
          {SPEEDS.map((name, at) => <option key={name} value={at}>{name}</option>)}
        </select>
        <button type="button" class="primary" onClick={comeBack}>Return to the present</button>
      </div>
    </section>
  );
}
