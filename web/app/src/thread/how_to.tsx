/**
 * Explains how to configure a model, in the words of docs/models.md. This file is loaded when the explanation is
 * opened.
 */

import { caps } from "../state/caps.ts";
import { Dialog } from "../ui/dialog.tsx";
import css from "./scripted.module.css";

const WITH_KEY = "OPENAI_API_KEY=your-key OPENAI_MODEL=gpt-5-mini threadcast serve";
const LOCAL = "OPENAI_BASE_URL=http://127.0.0.1:11434/v1 threadcast serve";
const IN_FILE = '[models]\ndefault = "openai/gpt-5-mini"';

export function HowTo({ onClose }: { onClose: () => void }) {
  const isOfFile = !(caps.value?.chat_default_model ?? "demo/").startsWith("demo/");
  return (
    <Dialog title="Configure a model" onClose={onClose}>
      <div class={css.howTo}>
        {isOfFile ? (
          <>
            <p>The server's <code>threadcast.toml</code> names a script as its default model. Name a model there:</p>
            <pre tabIndex={0}>{IN_FILE}</pre>
            <p>and start the server again with the key of its provider:</p>
          </>
        ) : (
          <p>Stop the server and start it again with the key of a provider:</p>
        )}
        <pre tabIndex={0}>{WITH_KEY}</pre>
        <p>or with the address of a server of models, such as Ollama, llama.cpp or vLLM:</p>
        <pre tabIndex={0}>{LOCAL}</pre>
        <p>Then load this page again. Other providers, fallbacks and prices: <code>docs/models.md</code>, which comes with the server.</p>
      </div>
    </Dialog>
  );
}
