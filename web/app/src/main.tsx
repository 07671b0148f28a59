/** Starts the page: the list of chats, the open chat, and the message box. */

import { render } from "preact";

import { App } from "./ui/app.tsx";
import "./styles/base.css";
import "./styles/ui.css";

const root = document.getElementById("app");
if (root) render(<App />, root);
