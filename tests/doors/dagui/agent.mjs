// A page of AG-UI without a screen: `HttpAgent` of npm `@ag-ui/client`, unpatched, driven by JSON lines on stdin.
// Arguments: the URL of the package's module, of `/ag-ui`, the thread's id, and options as JSON.
// It prints a line for each event, and all that the agent has for {"do": "show"}.
import { createInterface } from 'node:readline'

const [, , module, url, threadId, optionsText = '{}'] = process.argv
const options = JSON.parse(optionsText)
const { HttpAgent } = await import(module)

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n')
console.warn = (...words) => print({ warning: words.map(String).join(' ') })
console.error = () => {}
console.debug = () => {}
// After a cut the client rejects a promise that nobody holds. A browser logs it; Node.js would end the program.
process.on('unhandledRejection', () => {})

const agent = new HttpAgent({
  url,
  threadId,
  headers: options.headers,
  initialMessages: options.messages,
  initialState: options.state,
})
let events = []
let finished = []
agent.subscribe({
  onEvent: ({ event }) => {
    events.push(event)
    print({ event: event.type })
  },
  onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => void finished.push({ outcome, pendingToolCallIds }),
})

async function run({ message, messages = [], state, ...parameters }) {
  if (state !== undefined) agent.setState(state)
  for (const each of message === undefined ? messages : [message]) agent.addMessage(each)
  try {
    await agent.runAgent({ tools: options.tools, ...parameters })
    return null
  } catch (error) {
    return { name: error.name, message: error.message, status: error.status ?? null, payload: error.payload ?? null }
  }
}

const actions = {
  run,
  stop: () => agent.abortRun(),
  forget: () => {
    events = []
    finished = []
  },
  show: () =>
    print({
      messages: agent.messages,
      state: agent.state,
      interrupts: agent.pendingInterrupts,
      events,
      finished,
    }),
}

print({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, wait, ...rest } = JSON.parse(line)
  const done = actions[name](rest)
  if (name === 'run') {
    const told = done.then((error) => print({ done: name, error }))
    if (wait) await told
  } else if (wait) print({ done: name })
}
process.exit(0)
