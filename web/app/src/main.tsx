/** The page: a list of chats, the open one, and what is written into it. */

import { render } from "preact";

import { App } from "./ui/app.tsx";
import "./styles/base.css";
import "./styles/ui.css";

const root = document.getElementById("app");
if (root) render(<App />, root);
