/** Serves the page, and passes requests for the server on, so that the page and the server have one origin. */

const server = process.env.THREADCAST_URL ?? "http://127.0.0.1:8000";
const proxy = { "/ag-ui": server, "/v1": server };

export default { server: { proxy }, preview: { proxy } };
