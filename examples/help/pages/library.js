/**
 * The library's own page: it shows a report, its articles and a search, and tells the chat at its side which of them the
 * reader is looking at. Two messages are all that the two pages say to each other (docs/page.md).
 */

const PLACES = {
  start: { title: "Start", text: "Choose a report. The help at the side knows nothing of it yet." },
  reports: { title: "Sleep and memory", text: "A report by A. Moreau, 2025.", context: { report_id: "r-7" } },
  "reports/articles": {
    title: "Articles of “Sleep and memory”",
    text: "a-1: Naps and recall, 48 people. a-2: A night without sleep, 210 people.",
    context: { report_id: "r-7" },
  },
  "reports/articles/pubmed": { title: "PubMed", text: "Search the titles of PubMed.", context: { report_id: "r-7" } },
};

const chat = document.querySelector("iframe");
const page = document.querySelector("#page");
let place = "reports";

function show(next) {
  place = next;
  const { title, text } = PLACES[place];
  const heading = document.createElement("h2");
  heading.textContent = title;
  const paragraph = document.createElement("p");
  paragraph.textContent = text;
  page.replaceChildren(heading, paragraph);
  for (const button of document.querySelectorAll("[data-place]")) {
    if (button.dataset.place === place) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  tell();
}

/** Says where the reader is; null takes back what was said. The chat's origin is this page's own. */
function tell() {
  const { title, context } = PLACES[place];
  const known = context ? { title, scope: place.split("/"), ...context } : null;
  chat.contentWindow.postMessage({ type: "threadcast.context", context: known }, location.origin);
}

// The chat says when it listens, also after it was loaded again.
addEventListener("message", (event) => {
  if (event.source === chat.contentWindow && event.origin === location.origin && event.data?.type === "threadcast.ready") tell();
});
for (const button of document.querySelectorAll("[data-place]")) button.addEventListener("click", () => show(button.dataset.place));
show(place);
