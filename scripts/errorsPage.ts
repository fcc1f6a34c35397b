/**
 * docs/errors.md, made of the doc comments of the code's errors: what they say, and their tags `@remedy` (what to do) and
 * `@client` (what Gangway's client does about them by itself).
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Exit from "effect/Exit"
import * as RpcSchema from "effect/unstable/rpc/RpcSchema"
import { ending } from "../apps/cli/src/Failure.ts"
import type { Documented, Field } from "./docComments.ts"
import type { Problem } from "./project.ts"

interface Section {
  readonly title: string
  readonly about: string
  readonly isOf: (error: Documented) => boolean
}

const from = (name: string) => ({ path }: Documented) => path.startsWith(`packages/${name}/`)

const sections: ReadonlyArray<Section> = [
  {
    title: "Errors of commands",
    about:
      "What a bridge answers, on the wire as `{\"_tag\":…}` with the fields below; the client raises the same errors.",
    isOf: from("protocol")
  },
  { title: "Errors of the client", about: "What only Gangway's client raises.", isOf: from("client") },
  {
    title: "Errors of sandboxes",
    about: "Operations of a sandbox fail with `SandboxError`; the other errors are its reasons, but for `NoBuild`.",
    isOf: from("sandbox")
  },
  {
    title: "Errors of bridges and drivers",
    about:
      "What a bridge program says in one line on its standard error before it exits, and what drivers and logs raise " +
      "inside of it. A `DriverError` at its start makes it exit with 2, `LogUnavailable` with 4.",
    isOf: from("server")
  }
]

/** An error that hosts, drivers or programs may meet. */
const isError = ({ base }: Documented) => base !== undefined && /\bTaggedError\b/.test(base)

/** The exported tagged errors, those of private files included that a public one exports. */
export const exportedErrors = (
  docs: ReadonlyArray<Documented>,
  sources: ReadonlyArray<{ readonly path: string; readonly text: string }>
): ReadonlyArray<Documented> => {
  const reexported = new Set(
    sources.filter(({ path }) => !path.includes("/internal/")).flatMap(({ path, text }) =>
      [...text.matchAll(/^export \{([^}]*)\} from "\.\/(internal\/[^"]+)"/gm)].flatMap(([, names, file]) =>
        [...names!.replaceAll(/\/\*[\s\S]*?\*\//g, "").matchAll(/\w+/g)]
          .map(([name]) => `${path.replace(/[^/]*$/, "")}${file} ${name}`)
      )
    )
  )
  return docs.filter((error) =>
    isError(error) && (!error.path.includes("/internal/") || reexported.has(`${error.path} ${error.name}`))
  )
}

/** What the errors lack. */
export const errorProblems = (errors: ReadonlyArray<Documented>): ReadonlyArray<Problem> =>
  errors.flatMap(({ line, name, path, tags, text }) => {
    const problem = (message: string) => ({ path, line, message: `${name} ${message}` })
    return [
      ...(text === "" ? [problem("doesn't say what causes it: its doc comment needs a sentence")] : []),
      ...((tags.get("remedy") ?? "") === "" ? [problem("doesn't say what to do: its doc comment needs @remedy")] : [])
    ]
  })

/** What a list in a schema's comment says of its literals: the cause, and what to do. */
interface Literal {
  readonly name: string
  readonly cause: string
  readonly remedy: string
}

const literals = (about: Documented): ReadonlyArray<Literal> =>
  [...about.text.matchAll(/^- `([^`]+)`: (.*)$/gm)].map(([, name, text]) => {
    const [cause = "", ...rest] = text!.split(/(?<=[^.]\.) /)
    return { name: name!, cause, remedy: rest.join(" ") }
  })

/** Which literals a schema's comment doesn't explain, or explains without need. */
export const literalProblems = (about: Documented, names: ReadonlyArray<string>): ReadonlyArray<Problem> => {
  const { line, name, path } = about
  const said = literals(about)
  const problem = (literal: string, message: string) => ({ path, line, message: `${name}: \`${literal}\` ${message}` })
  return [
    ...names.filter((name) => !said.some((literal) => literal.name === name)).map((name) =>
      problem(name, "isn't in the list of its doc comment")
    ),
    ...said.filter(({ name }) => !names.includes(name)).map(({ name }) => problem(name, "is no literal of it")),
    ...said.filter(({ remedy }) => remedy === "").map(({ name }) =>
      problem(name, "lacks a second sentence: what to do")
    )
  ]
}

// What's quoted stays on its line.
const wrap = (text: string, first = "", others = ""): string => {
  const lines: Array<string> = []
  let line = first
  for (const [word] of text.matchAll(/(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|[^\s`[])+|\[/g)) {
    if (line.length + word.length + 1 > 120 && line.trim() !== "") {
      lines.push(line)
      line = others
    }
    line += line === first || line === others ? word : ` ${word}`
  }
  return [...lines, line].join("\n")
}

// Where the code names a section of the protocol, the page links it.
const linked = (text: string) =>
  text.replaceAll(
    /docs\/protocol\.md, "([^"]+)"/g,
    (_, title: string) =>
      `[the protocol, ${title}](protocol.md#${title.toLowerCase().replaceAll(/[^\w -]/g, "").replaceAll(" ", "-")})`
  )

const types: Readonly<Record<string, string>> = {
  "Schema.String": "text",
  "Schema.Int": "a whole number",
  "Schema.Json": "any JSON",
  "Schema.Defect()": "what failed underneath",
  "Schema.Array(Schema.String)": "a list of texts",
  End: "[an end](protocol.md#ends)",
  Reason: "a reason",
  TurnState: "`running`, `finished`, `failed` or `aborted`",
  Probe: "`ours` or `other`",
  "Exclude<Bridge.FailureKind, \"disk-full\" | \"log-full\">": "a kind, but neither `disk-full` nor `log-full`",
  "StartTurnError | StartSessionError": "an error of `StartTurn` or `StartSession`, or `BridgeUnavailable`",
  string: "text",
  number: "a whole number"
}

const typeOf = ({ type }: Field): string => {
  const plain = type
    .replace(/^Schema\.optional\(([\s\S]*)\)$/, "$1")
    .replace(/ \| undefined$/, "")
    .replace(/^Bridge\./, "")
  if (/^\w+Id$/.test(plain)) return "an id"
  const names = /^Schema\.(?:Literals|Union)\(\[([\s\S]*)\]\)$/.exec(plain)?.[1]?.match(/[\w-]+/g) ??
    (/^"[\w-]+"(?: \| "[\w-]+")*$/.test(plain) ? plain.match(/[\w-]+/g) : null)
  if (names !== null) return names.map((name) => `\`${name}\``).join(", ").replace(/, ([^,]*)$/, " or $1")
  return types[plain] ?? `\`${plain.replaceAll(/\s+/g, " ")}\``
}

const isOptional = ({ isOptional, type }: Field) => isOptional || type.endsWith(" | undefined")

const commandsOf = new Map<string, Array<string>>()
for (const [command, rpc] of Bridge.Rpcs.requests) {
  const error = RpcSchema.isStreamSchema(rpc.successSchema) ? rpc.successSchema.error : rpc.errorSchema
  const members = "members" in error ? error.members as ReadonlyArray<unknown> : [error]
  for (const member of members) {
    const { identifier } = member as { readonly identifier: string }
    commandsOf.set(identifier, [...commandsOf.get(identifier) ?? [], command])
  }
}

const answeredTo = (tag: string): string | undefined => {
  const commands = commandsOf.get(tag)
  if (commands === undefined) return undefined
  const others = [...Bridge.Rpcs.requests.keys()].filter((command) => !commands.includes(command))
  return others.length < 3 && commands.length > 5
    ? `every command but ${others.map((name) => `\`${name}\``).join(" and ")}`
    : commands.map((name) => `\`${name}\``).join(", ")
}

// What `gangway` exits with, by what it does about an error.
const cliCode = (tag: string) =>
  ending(Exit.fail({ _tag: tag, message: "", bridge: "", reason: { _tag: "Refused" } })).exitCode

/** The page. `exitCodes` are those of a bridge program, by the errors' names. */
export const errorsPage = (
  docs: ReadonlyArray<Documented>,
  errors: ReadonlyArray<Documented>,
  exitCodes: ReadonlyMap<string, number>
): string => {
  const titleOf = (error: Documented) => {
    const isDouble = errors.some((other) => other !== error && other.name === error.name && !from("protocol")(error))
    return isDouble ? `${/(\w+)\.ts$/.exec(error.path)![1]}.${error.name}` : error.name
  }
  const anchorOf = (error: Documented) => titleOf(error).toLowerCase().replaceAll(".", "")
  const table = (name: string) => {
    const about = docs.find((one) => one.name === name && one.base === undefined)!
    return literals(about).map(({ cause, name, remedy }) => `| \`${name}\` | ${cause} | ${linked(remedy)} |`).join("\n")
  }
  const section = (error: Documented) => {
    const commands = answeredTo(error.name)
    const isWire = from("protocol")(error)
    const fields = error.fields.filter(({ path }) => path.length === 1).map((field) =>
      wrap(
        `\`${field.path[0]}\`: ${typeOf(field)}${isOptional(field) ? ", or absent" : ""}${
          field.text === "" ? "" : `. ${field.text}`
        }`,
        "  - ",
        "    "
      )
    )
    const item = (name: string, text: string | undefined) =>
      text === undefined ? [] : [wrap(linked(text), `- **${name}:** `, "  ")]
    const bridgeCode = exitCodes.get(error.name)
    const isHosts = isWire || from("client")(error)
    const codes = [
      ...(bridgeCode === undefined ? [] : [`${bridgeCode} of the bridge program`]),
      ...(isHosts && error.name !== "ClientClosed" ? [`${cliCode(error.name)} of \`gangway\``] : [])
    ]
    return [
      `### ${titleOf(error)}`,
      "",
      wrap(linked(error.text)),
      "",
      ...item("Answered to", isWire ? commands : undefined),
      ...(fields.length === 0 ? [] : ["- **Fields:**", ...fields]),
      ...item("What to do", error.tags.get("remedy")),
      ...item("Gangway's client", error.tags.get("client") ?? (isWire ? "passes it on." : undefined)),
      ...item("Exit code", codes.length === 0 ? undefined : codes.join(", ")),
      ""
    ].join("\n")
  }
  return [
    "# Errors",
    "",
    "<!-- Made of the code's doc comments by `bun run schemas`: change those. -->",
    "",
    wrap(
      "Every error has a `_tag`, the title of its section, and a `message` for people. In Effect they're typed failures, in " +
        "plain TypeScript what promises reject with. Connections that break, bridges that die and sandboxes that sleep are " +
        "not among them as long as trying again helps: Gangway's client does that by itself. The exit code of `gangway` is " +
        "that of a command which ends with the error; see [the command line](cli.md)."
    ),
    "",
    ...sections.map(({ isOf, title }) =>
      wrap(
        `**${title}:** ${errors.filter(isOf).map((error) => `[${titleOf(error)}](#${anchorOf(error)})`).join(", ")}.`,
        "- ",
        "  "
      )
    ),
    "- [Why a bridge is unavailable](#why-a-bridge-is-unavailable)",
    "- [Why a turn failed](#why-a-turn-failed)",
    "- [Why an attempt was aborted](#why-an-attempt-was-aborted)",
    "- Close codes of the WebSocket are in [the protocol](protocol.md#close-codes), and so are",
    "  [refused requests](protocol.md#refused-requests) and [answers over HTTP](protocol.md#answers-over-http).",
    "",
    ...sections.flatMap(({ about, isOf, title }) => [
      `## ${title}`,
      "",
      wrap(about),
      "",
      ...errors.filter(isOf).map(section)
    ]),
    "## Why a bridge is unavailable",
    "",
    wrap(
      "The reasons of [BridgeUnavailable](#bridgeunavailable). The client tries again for `reconnectFor` before it fails, " +
        "but for those that are final."
    ),
    "",
    "| reason | | what to do |",
    "|---|---|---|",
    table("Reason"),
    "",
    "## Why a turn failed",
    "",
    wrap(
      "The `kind` of an end that is `failed`, which is final: the turn isn't continued, and its id can't be used again."
    ),
    "",
    "| kind | | what to do |",
    "|---|---|---|",
    table("FailureKind"),
    "",
    "## Why an attempt was aborted",
    "",
    wrap(
      "The `reason` of an end that is `aborted`. The turn can be [continued](protocol.md#continuing); Gangway's client does " +
        "that by itself after `bridge-died`, `bridge-replaced` and `shutdown`."
    ),
    "",
    "| reason | | what to do |",
    "|---|---|---|",
    table("AbortReason"),
    ""
  ].join("\n")
}
