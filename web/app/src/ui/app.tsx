/** The frame that everything stands in: the list at the side, the chat in the middle, notices above all. */

import { Composer } from "../composer/composer.tsx";
import { Queue } from "../composer/queue.tsx";
import { Drawer } from "../drawer/drawer.tsx";
import { Past } from "../drawer/past.tsx";
import { Sidebar } from "../sidebar/sidebar.tsx";
import { Thread } from "../thread/thread.tsx";
import { Questions, Suggestions } from "../tools/index.tsx";
import { ConnectionBar } from "./connection.tsx";
import { Notices } from "./notices.tsx";

export function App() {
  return (
    <div class="app">
      <Sidebar />
      <main class="chat">
        <ConnectionBar />
        <Past />
        <Thread />
        <div class="foot">
          <Questions />
          <Suggestions />
          <Queue />
          <Composer />
        </div>
      </main>
      <Drawer />
      <Notices />
    </div>
  );
}
