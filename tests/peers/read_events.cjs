// Reads one stream with @microsoft/fetch-event-source, unchanged, and prints each message that it hands on as a line of JSON.
//   node read_events.cjs PATH_TO_PACKAGE URL [BODY]
globalThis.window = globalThis; // it is made for browsers, and asks for timers and fetch there
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const { fetchEventSource } = require(process.argv[2]);
const [url, body] = process.argv.slice(3);

fetchEventSource(url, {
  method: body === undefined ? "GET" : "POST",
  body,
  openWhenHidden: true,
  onmessage: (message) => console.log(JSON.stringify([message.event, message.data])),
  onerror: (wrong) => {
    throw wrong;
  },
}).then(
  () => process.exit(0),
  (wrong) => {
    console.error(wrong);
    process.exit(1);
  },
);
