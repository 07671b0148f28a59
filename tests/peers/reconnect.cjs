// Watches streams with npm's eventsource, unchanged; prints a line whenever one of them is open.
//   node reconnect.cjs PATH_TO_PACKAGE NAME=URL...
const { EventSource } = require(process.argv[2]);

for (const named of process.argv.slice(3)) {
  const [name, url] = named.split(/=(.*)/s);
  new EventSource(url).onmessage = () => console.log(name);
}
