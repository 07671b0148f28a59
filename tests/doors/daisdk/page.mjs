// A page without a screen: the chat of npm `ai`, unpatched, driven by JSON lines on stdin.
// Arguments: the URL of the package's module, of `/ai-sdk/chat`, the chat's id, and options as JSON.
// It prints a line after each change ({status, length, error}), and all messages for {"do": "show"}.
import { createInterface } from 'node:readline'

const [, , module, api, id, optionsText = '{}'] = process.argv
const options = JSON.parse(optionsText)
const {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} = await import(module)

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n')

class State {
  constructor(messages) {
    this.messages = messages
    this.status = 'ready'
    this.error = undefined
  }
  pushMessage = (message) => {
    this.messages = this.messages.concat(message)
  }
  popMessage = () => {
    this.messages = this.messages.slice(0, -1)
  }
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), this.snapshot(message), ...this.messages.slice(index + 1)]
    tell()
  }
  snapshot = (value) => structuredClone(value)
}

class Chat extends AbstractChat {
  setStatus(change) {
    super.setStatus(change)
    tell()
  }
}

const state = new State(options.messages ?? [])
const data = []
const calls = []
let requests = 0

function length() {
  const last = state.messages.at(-1)
  if (last?.role !== 'assistant') return 0
  return last.parts.reduce((sum, part) => sum + (part.text?.length ?? 0), 0)
}

function tell() {
  print({ status: state.status, length: length(), error: state.error?.message ?? null, requests, calls: calls.length })
}

const plain = () =>
  new DefaultChatTransport({
    api,
    headers: options.headers,
    body: options.body,
    fetch: (...of) => {
      requests += 1
      return fetch(...of)
    },
  })

/** Our transport, from the modules of our two packages. */
async function ours() {
  const { connect } = await import(options.ours.client)
  const { ThreadcastTransport } = await import(options.ours.transport)
  const transport = new ThreadcastTransport(connect({ url: new URL(api).origin }), options.body)
  const send = transport.sendMessages.bind(transport)
  transport.sendMessages = (of) => {
    requests += 1
    return send(of)
  }
  return transport
}

const transport = options.ours ? await ours() : plain()
const chat = new Chat({
  id,
  state,
  transport,
  onData: (part) => data.push(part),
  onToolCall: ({ toolCall }) => void calls.push(toolCall),
  sendAutomaticallyWhen: options.automatic
    ? (of) =>
        lastAssistantMessageIsCompleteWithApprovalResponses(of) || lastAssistantMessageIsCompleteWithToolCalls(of)
    : undefined,
})

const actions = {
  send: ({ message, options }) => chat.sendMessage(message, options),
  regenerate: ({ messageId }) => chat.regenerate({ messageId }),
  resume: () => chat.resumeStream(),
  stop: () => chat.stop(),
  approve: (answer) => chat.addToolApprovalResponse(answer),
  output: (answer) => chat.addToolOutput(answer),
  show: () => print({ messages: state.messages, data, calls, status: state.status, requests }),
}

if (options.follows) {
  transport.follow(id, {
    setMessages: (messages) => {
      state.messages = messages
      print({ followed: messages.length })
    },
    resume: () => chat.resumeStream(),
    isBusy: () => state.status === 'submitted' || state.status === 'streaming',
  })
}
print({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, wait, ...rest } = JSON.parse(line)
  const done = actions[name](rest)
  if (wait) {
    await done
    print({ done: name, status: state.status, error: state.error?.message ?? null })
  } else if (done) void done
}
process.exit(0)
