// CopilotKit's runtime in front of the door: its endpoint for pages runs our agent through its own `HttpAgent`.
// Arguments: the URL of the runtime's module, of `@ag-ui/client` beside it, and of `/ag-ui`.
// It reads a body as JSON from each line of stdin, and prints the events of the runtime's answer.
import { createInterface } from 'node:readline'

process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true'
const [, , module, clientModule, url] = process.argv
const { CopilotRuntime, InMemoryAgentRunner, createCopilotEndpoint } = await import(module)
const { HttpAgent } = await import(clientModule)

const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url }) }, runner: new InMemoryAgentRunner() })
const app = createCopilotEndpoint({ runtime, basePath: '/copilot' })

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await app.fetch(
    new Request('http://page/copilot/agent/default/run', {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: line,
    }),
  )
  const lines = (await answer.text()).split('\n').filter((each) => each.startsWith('data:'))
  process.stdout.write(JSON.stringify(lines.map((each) => JSON.parse(each.slice(5)))) + '\n')
}
process.exit(0)
