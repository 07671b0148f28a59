/**
 * A window of VS Code as far as the extension of examples/vscode asks for one: a folder, documents, edits, an output
 * channel, and a person who answers questions as ANSWERS says.
 *
 *     node vscode_window.cjs EXTENSION FOLDER URL CHAT
 *
 * Each line of standard input is asked through the extension's own command. What the window shows goes to standard
 * output, a JSON array to a line: ["output", text], ["question", text], ["status", text], ["error", text].
 */

const fs = require("node:fs");
const path = require("node:path");
const Module = require("node:module");
const readline = require("node:readline");

const [extensionFile, folder, url, chat] = process.argv.slice(2);
const answers = JSON.parse(process.env.ANSWERS ?? "[]");
const show = (...what) => process.stdout.write(`${JSON.stringify(what)}\n`);

class Uri {
  constructor(file) {
    this.path = file;
    this.fsPath = file;
  }
  static joinPath(base, ...parts) {
    return new Uri(path.posix.join(base.path, ...parts));
  }
}

class TextDocument {
  constructor(uri) {
    this.uri = uri;
    this.text = fs.readFileSync(uri.fsPath, "utf8");
  }
  getText() {
    return this.text;
  }
  positionAt(offset) {
    return offset;
  }
  async save() {
    fs.writeFileSync(this.uri.fsPath, this.text);
    return true;
  }
}

class WorkspaceEdit {
  changes = [];
  replace(uri, range, text) {
    this.changes.push({ uri, range, text });
  }
}

const documents = new Map();
const commands = new Map();
const disposable = (dispose = () => {}) => ({ dispose });

const vscode = {
  Uri,
  WorkspaceEdit,
  Range: class {
    constructor(start, end) {
      Object.assign(this, { start, end });
    }
  },
  StatusBarAlignment: { Right: 2 },
  workspace: {
    workspaceFolders: [{ uri: new Uri(fs.realpathSync(folder)) }],
    getConfiguration: () => ({ get: (key) => ({ url, chat })[key] }),
    async openTextDocument(uri) {
      if (!documents.has(uri.path)) documents.set(uri.path, new TextDocument(uri));
      return documents.get(uri.path);
    },
    async applyEdit(edit) {
      for (const { uri, range, text } of edit.changes) {
        const document = documents.get(uri.path);
        document.text = document.text.slice(0, range.start) + text + document.text.slice(range.end);
      }
      return true;
    },
  },
  window: {
    createOutputChannel: () => ({
      appendLine: (text) => show("output", text),
      clear: () => show("output", null),
      show() {},
      dispose() {},
    }),
    createStatusBarItem: () => ({
      set text(text) {
        show("status", text);
      },
      show() {},
      dispose() {},
    }),
    async showWarningMessage(text) {
      show("question", text);
      return answers.shift();
    },
    async showInformationMessage(text) {
      show("question", text);
      return answers.shift();
    },
    showQuickPick: async () => answers.shift(),
    showErrorMessage: (text) => show("error", text),
    showInputBox: async () => answers.shift(),
  },
  commands: {
    registerCommand(name, run) {
      commands.set(name, run);
      return disposable(() => commands.delete(name));
    },
  },
};

const load = Module._load;
Module._load = function (request, ...rest) {
  return request === "vscode" ? vscode : load.call(this, request, ...rest);
};

const state = new Map();
const context = {
  subscriptions: [],
  secrets: { get: async () => undefined },
  workspaceState: { get: (key) => state.get(key), update: async (key, value) => void state.set(key, value) },
};
const extension = require(path.resolve(extensionFile));

extension.activate(context).then(() => {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", (line) => commands.get("threadcast.ask")(line));
  lines.on("close", () => {
    for (const each of context.subscriptions) each.dispose();
    extension.deactivate();
  });
});
