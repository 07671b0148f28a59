/** The frame that everything stands in: the list at the side, the chat in the middle, notices above all. */

import { Composer } from "../composer/composer.tsx";
import { Sidebar } from "../sidebar/sidebar.tsx";
import { Thread } from "../thread/thread.tsx";
import { ConnectionBar } from "./connection.tsx";
import { Notices } from "./notices.tsx";

export function App() {
  return (
    <div class="app">
      <Sidebar />
      <main class="chat">
        <ConnectionBar />
        <Thread />
        <Composer />
      </main>
      <Notices />
    </div>
  );
}
