/**
 * The JSON Schemas in docs/schema, made of the Effect schemas of the code and its doc comments.
 */
import { Acp } from "@gangway/drivers/Acp"
import { ClaudeCode } from "@gangway/drivers/ClaudeCode"
import { Codex } from "@gangway/drivers/Codex"
import { Scripted } from "@gangway/drivers/Scripted"
import * as Bridge from "@gangway/protocol/Bridge"
import { Owner } from "@gangway/server/StateDirectory"
import * as Schema from "effect/Schema"
import * as RpcSchema from "effect/unstable/rpc/RpcSchema"
import { Header } from "../packages/server/src/internal/logLine.ts"
import { SessionFile } from "../packages/server/src/internal/sessionFile.ts"
import type { Documented } from "./docComments.ts"

/** A schema as JSON. */
export interface Json {
  readonly [key: string]: unknown
}

/** A file of docs/schema. */
export interface SchemaFile {
  readonly name: string
  /** What it describes, in one sentence without a full stop. */
  readonly about: string
  readonly schema: Json
}

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

// What Effect makes of a schema, in the words of docs/protocol.md: fields that may be absent are never `null`, and
// others than those that are named are ignored.
const toJson = (self: Schema.Constraint): Json => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(self)
  const visit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(visit)
    if (!isObject(value)) return value
    if (typeof value["$ref"] === "string") return visit(definitions[value["$ref"].replace("#/$defs/", "")])
    const out: Record<string, unknown> = {}
    for (const [key, child] of Object.entries(value)) {
      // A list that isn't empty.
      if (key === "prefixItems" && JSON.stringify(child) === JSON.stringify([value["items"]])) continue
      if (key === "additionalProperties" && (child === true || isOpen(child))) continue
      if (key === "allOf" && Array.isArray(child) && child.every((all) => isOpen(visit(all)))) continue
      if (key === "enum" && Array.isArray(child) && child.length === 1) {
        delete out["type"]
        out["const"] = child[0]
      } else if (key === "properties") {
        const required = value["required"] as ReadonlyArray<string> | undefined
        const properties = Object.entries(child as Json).map(([name, property]) => {
          const schema = visit(property) as Json
          return [name, required?.includes(name) === true ? schema : withoutNull(schema)]
        })
        out[key] = Object.fromEntries(properties)
      } else out[key] = visit(child)
    }
    return out
  }
  return visit(schema) as Json
}

const isOpen = (schema: unknown) =>
  isObject(schema) && Object.keys(schema).every((key) => key === "type" && schema[key] === "object")

const withoutNull = (schema: Json): Json => {
  const { anyOf, ...rest } = schema
  if (!Array.isArray(anyOf)) return schema
  const others = anyOf.filter((one) => one.type !== "null")
  return others.length === 1 ? { ...rest, ...others[0] } : { ...rest, anyOf: others }
}

/** Where the doc comments of a definition are: of an export, or of some of its fields. */
interface Definition {
  readonly schema: Json
  readonly docs: string
  readonly at: ReadonlyArray<string>
}

const definitions = new Map<string, Definition>()
/** The names of definitions by their schemas: whatever has the same schema refers to it. */
const names = new Map<string, string>()

const define = (name: string, schema: Json, docs = name, at: ReadonlyArray<string> = []): Json => {
  definitions.set(name, { schema, docs, at })
  const key = JSON.stringify(schema)
  // Ids are all alike, and what isn't constrained is nobody's.
  const isOwn = schema["properties"] !== undefined || schema["anyOf"] !== undefined || schema["enum"] !== undefined ||
    schema["items"] !== undefined
  if (isOwn && !names.has(key)) names.set(key, name)
  return { $ref: `#/$defs/${name}` }
}

for (const [name, value] of Object.entries(Bridge)) {
  if (Schema.isSchema(value)) define(name, toJson(value))
}

const object = (properties: Json, optional: ReadonlyArray<string> = []): Json => ({
  type: "object",
  properties,
  required: Object.keys(properties).filter((name) => !optional.includes(name))
})
const tagged = (tag: string, properties: Json = {}, optional?: ReadonlyArray<string>) =>
  object({ _tag: { const: tag }, ...properties }, optional)

// The envelopes are those of Effect's RPC with JSON, for which it has types and no schemas: see docs/protocol.md, 3a.
const requestId = define("RequestId", { anyOf: [{ type: "number" }, { type: "string", maxLength: 128 }] })

const requests: Array<Json> = []
/** The definitions that no frame refers to, since an answer doesn't say what it's of. */
const answers: Array<string> = []
const errors = new Map<string, Json>()
for (const [tag, rpc] of Bridge.Rpcs.requests) {
  const payload = define(`${tag}Payload`, toJson(rpc.payloadSchema), tag, ["payload"])
  const isStream = RpcSchema.isStreamSchema(rpc.successSchema)
  const success = isStream ? rpc.successSchema.success : rpc.successSchema
  const error = isStream ? rpc.successSchema.error : rpc.errorSchema
  define(`${tag}Success`, toJson(success), tag, ["success"])
  const failure = toJson(error)
  define(`${tag}Error`, failure, tag, ["error"])
  for (const one of (failure["anyOf"] ?? [failure]) as ReadonlyArray<any>) {
    errors.set(one.properties._tag.const, one)
  }
  answers.push(`${tag}Success`, `${tag}Error`)
  const request = tagged("Request", { id: requestId, tag: { const: tag }, payload })
  requests.push(define(`${tag}Request`, request))
}

const anyError = define("CommandError", { anyOf: [...errors.values()] })
const reason = {
  anyOf: [
    tagged("Fail", { error: anyError }),
    tagged("Die", { defect: {} }),
    tagged("Interrupt", { fiberId: { type: "number" } }, ["fiberId"])
  ]
}
const failed = tagged("Failure", { cause: { type: "array", items: reason, minItems: 1 } })
const hostMessage = define("HostMessage", {
  anyOf: [
    ...requests,
    tagged("Ack", { requestId }),
    tagged("Interrupt", { requestId }),
    tagged("Ping"),
    tagged("Eof")
  ]
})
const bridgeMessage = define("BridgeMessage", {
  anyOf: [
    tagged("Exit", { requestId, exit: { anyOf: [tagged("Success", { value: {} }, ["value"]), failed] } }),
    tagged("Chunk", { requestId, values: { type: "array", items: { $ref: "#/$defs/TurnEvent" }, minItems: 1 } }),
    tagged("Defect", { defect: {} }),
    tagged("Pong")
  ]
})
const frame = (message: Json): Json => ({ anyOf: [message, { type: "array", items: message }] })

const turnHeader = define("TurnHeader", toJson(Header), "Header")

const agent = ({ name, options }: { readonly name: string; readonly options: Schema.Constraint }, path: string) => {
  const { properties, required = [] } = toJson(options) as { properties: Json; required?: ReadonlyArray<string> }
  const common = definitions.get("AgentOptions")!.schema["properties"] as Json
  const schema = {
    type: "object",
    properties: { ...common, agent: { const: name }, ...properties },
    required: ["agent", ...required]
  }
  return { name: `agent-${name}.json`, about: `The agent options of \`${name}\``, schema, docs: `${path} Options` }
}

interface Described extends SchemaFile {
  /** Where the doc comments of its fields are, where it's no definition. */
  readonly docs?: string
  /** The definitions that it has besides those that it refers to. */
  readonly also?: ReadonlyArray<string>
}

const files: ReadonlyArray<Described> = [
  {
    name: "messages.json",
    about:
      "A frame of the WebSocket, of either side; each procedure's payload, success (of `ReadTurn`, an element of its " +
      "stream) and errors are in `$defs`, as `StartTurnPayload`, `StartTurnSuccess` and `StartTurnError`",
    schema: { anyOf: [{ $ref: "#/$defs/HostFrame" }, { $ref: "#/$defs/BridgeFrame" }] },
    also: answers
  },
  { name: "part.json", about: "A part of a turn", schema: { $ref: "#/$defs/Part" } },
  {
    name: "turn-line.json",
    about: "A line of a turn's file: its header, a part, or an attempt's end",
    schema: { anyOf: [turnHeader, { $ref: "#/$defs/NumberedPart" }, { $ref: "#/$defs/EndLine" }] }
  },
  {
    name: "session-options.json",
    about: "The options of a session",
    schema: { $ref: "#/$defs/SessionOptions" }
  },
  { name: "hello.json", about: "The answer to `Hello`", schema: { $ref: "#/$defs/HelloReply" } },
  { name: "launch-options.json", about: "The launch line", schema: { $ref: "#/$defs/LaunchOptions" } },
  agent(ClaudeCode, "packages/drivers/src/internal/claudeOptions.ts"),
  agent(Codex, "packages/drivers/src/internal/codexOptions.ts"),
  agent(Acp, "packages/drivers/src/internal/acpOptions.ts"),
  agent(Scripted, "packages/drivers/src/Scripted.ts"),
  {
    name: "listening-file.json",
    about: "The listening file, `listening.json`",
    schema: { $ref: "#/$defs/ListeningFile" }
  },
  {
    name: "owner-file.json",
    about: "`owner.json`, the bridge that a state directory belongs to",
    schema: define("OwnerFile", toJson(Owner), "Owner")
  },
  {
    name: "session-file.json",
    about: "`session.json`, which is the bridge's own: another version's may differ",
    schema: define("SessionFile", toJson(SessionFile))
  }
]
define("HostFrame", frame(hostMessage))
define("BridgeFrame", frame(bridgeMessage))

/** The files of docs/schema; each stands alone. `docs` says what the code says of its fields. */
export const schemaFiles = (docs: ReadonlyArray<Documented>): ReadonlyArray<SchemaFile> => {
  const texts = new Map<string, string>()
  const say = (key: string, text: string) => text !== "" && !texts.has(key) && texts.set(key, text)
  // Names are those of the protocol, and then of others.
  const isOthers = ({ path }: Documented) => Number(!path.startsWith("packages/protocol/"))
  for (const { fields, name, path, text } of docs.toSorted((a, b) => isOthers(a) - isOthers(b))) {
    for (const owner of [name, `${path} ${name}`]) {
      say(owner, text)
      for (const field of fields) say([owner, ...field.path].join("."), field.text)
    }
  }

  return files.map(({ about, also = [], docs: root, name, schema }) => {
    const used = new Map<string, Json>()
    const use = (definition: string): Json => {
      if (!used.has(definition)) {
        used.set(definition, {})
        const { at, docs, schema } = definitions.get(definition)!
        const other = names.get(JSON.stringify(schema))
        const isOther = other !== undefined && other !== definition
        used.set(definition, isOther ? use(other) : describe(schema, [docs, ...at], true))
      }
      return { $ref: `#/$defs/${definition}` }
    }
    // A schema with what's said of it, and with references to what has a name.
    const describe = (schema: Json, at: ReadonlyArray<string>, isOwn: boolean): Json => {
      const text = texts.get(at.join("."))
      const said = text === undefined || (at.length === 1 && !isOwn) ? {} : { description: text }
      const { $ref } = schema
      const known = typeof $ref === "string" ? $ref.replace("#/$defs/", "") : names.get(JSON.stringify(schema))
      if (known !== undefined && !isOwn) return { ...said, ...use(known) }
      const out: Record<string, unknown> = { ...said }
      for (const [key, child] of Object.entries(schema)) {
        if (key === "properties") {
          out[key] = Object.fromEntries(
            Object.entries(child as Json).map(([name, one]) => [name, describe(one as Json, [...at, name], false)])
          )
        } else if (Array.isArray(child) && (key === "anyOf" || key === "allOf")) {
          out[key] = child.map((one) => undescribed(one, at))
        } else if ((key === "items" || key === "additionalProperties") && isObject(child)) {
          out[key] = undescribed(child, at)
        } else out[key] = child
      }
      return out
    }
    // What's said of a list or a choice isn't said again of what's in it.
    const undescribed = (schema: Json, at: ReadonlyArray<string>): Json => {
      const { description: _, ...rest } = describe(schema, at, false)
      return rest
    }
    also.forEach(use)
    const main = describe(schema, root === undefined ? [] : [root], root !== undefined)
    return {
      name,
      about,
      schema: {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        $id: name,
        title: `${about.replaceAll("`", "").split(";")[0]}.`,
        ...main,
        ...(used.size === 0 ? {} : { $defs: Object.fromEntries([...used].toSorted(([a], [b]) => a < b ? -1 : 1)) })
      }
    }
  })
}

/** JSON with what's short on one line. */
export const print = (value: unknown, indent = ""): string => {
  const flat = JSON.stringify(value, undefined, 1)?.replaceAll(/\n\s*/g, " ") ?? "null"
  if (typeof value !== "object" || value === null || indent.length + flat.length <= 110) return flat
  const inner = `${indent}  `
  const lines = Array.isArray(value)
    ? value.map((one) => `${inner}${print(one, inner)}`)
    : Object.entries(value).map(([key, one]) => `${inner}${JSON.stringify(key)}: ${print(one, inner)}`)
  const [open, close] = Array.isArray(value) ? "[]" : "{}"
  return `${open}\n${lines.join(",\n")}\n${indent}${close}`
}
