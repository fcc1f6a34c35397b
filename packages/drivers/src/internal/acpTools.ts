/**
 * A tool call as the agent tells it bit by bit, and what can be said of it.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type { ContentBlock, ToolContent, ToolFields } from "./acpMessages.ts"
import { hunksOf, unifiedDiff } from "./unifiedDiff.ts"

/** The MCP server as which the driver offers the host's tools. */
export const hostServer = "host"

/** The host tool that an agent means by a name: each has its own way to put the server's name before the tool's. */
export const hostTool = (name: string, tools: ReadonlySet<string>): string | undefined => {
  const [, tool] = new RegExp(`^(?:mcp_+)?${hostServer}(?:_+|[/.:])(.+)$`).exec(name) ?? []
  return tool !== undefined && tools.has(tool) ? tool : undefined
}

/** What is known of a call so far. */
export interface Call {
  readonly id: string
  /** The first title: many agents first say the tool's name, and later what it does. */
  readonly title: string | undefined
  /** What was told last of each thing. */
  fields: ToolFields
  /** What a terminal of the agent's own printed, bit by bit. */
  printed: string
  /** Changes of files that a request for permission showed. */
  proposed: ReadonlyArray<ToolContent>
}

const isSet = (value: unknown): boolean => value !== undefined && value !== null

/** Whether an input says anything. */
export const isInput = (input: Schema.Json | null | undefined): boolean =>
  Predicate.isObject(input) ? Object.keys(input).length > 0 : isSet(input)

export const makeCall = (fields: ToolFields): Call => ({
  id: fields.toolCallId,
  title: fields.title ?? undefined,
  fields: { ...fields, _meta: undefined },
  printed: "",
  proposed: []
})

/** The most that is kept of what a terminal printed, in characters; the beginning goes first. */
const maxPrinted = 1024 * 1024

/** Takes what an update tells; what it leaves out stays. */
export const merge = (call: Call, told: ToolFields): void => {
  const { _meta, ...fields } = told
  const added = printedIn(_meta)
  if (added !== "") {
    call.printed += added
    // Cutting costs as much as there is, so not with each bit.
    if (call.printed.length > 2 * maxPrinted) call.printed = call.printed.slice(-maxPrinted)
  }
  call.fields = {
    ...call.fields,
    ...Object.fromEntries(Object.entries(fields).filter(([, value]) => isSet(value))),
    _meta: mergeMeta(call.fields._meta, _meta)
  } as ToolFields
}

// Each update may tell another thing of the same extension.
const mergeMeta = (known: ToolFields["_meta"], told: ToolFields["_meta"]): ToolFields["_meta"] =>
  isSet(told)
    ? {
      ...known,
      ...Object.fromEntries(
        Object.entries(told!).map((
          [key, value]
        ) => [key, isRecord(value) ? { ...asRecord(known?.[key]), ...value } : value])
      )
    }
    : known

const isRecord = (value: Schema.Json | undefined): value is Schema.JsonObject =>
  Predicate.isObject(value) && !Array.isArray(value)

const asRecord = (value: Schema.Json | undefined): Schema.JsonObject => isRecord(value) ? value : {}

// An extension that editors understand, by which adapters show commands that they run themselves.
const printedIn = (meta: ToolFields["_meta"]): string =>
  ["terminal_output_delta", "terminal_output"].map((key) => {
    const { data } = asRecord(meta?.[key])
    return Predicate.isString(data) ? data : ""
  }).join("")

/** Takes what a request for permission tells: some agents say less of the input there, and more of the outcome. */
export const mergeAsked = (call: Call, told: ToolFields): void => {
  const { content, rawInput, status: _, ...rest } = told
  merge(call, { ...rest, ...(isInput(call.fields.rawInput) ? {} : { rawInput }) })
  call.proposed = (content ?? []).filter(({ type }) => type === "diff")
}

/** The tool's name. The protocol asks for none, so it may be a kind, such as `execute`. */
export const nameOf = ({ fields, title }: Call): string =>
  fields.name ?? namedIn(fields._meta) ??
    (title !== undefined && /^[\w-]{1,64}$/.test(title) ? title : fields.kind ?? "tool")

const namedIn = (meta: ToolFields["_meta"]): string | undefined => {
  const name = meta?.["toolName"]
  return Predicate.isString(name) ? name : undefined
}

/** The input, or in its place what people would be shown. */
export const paramsOf = ({ fields: { locations, rawInput, title } }: Call): Schema.Json =>
  isInput(rawInput)
    ? rawInput!
    : {
      ...(isSet(title) ? { title: title! } : {}),
      ...((locations ?? []).length > 0 ? { paths: locations!.map(({ path }) => path) } : {})
    }

export const textOf = (block: ContentBlock): string | undefined => {
  if (block.type === "text") return block.text ?? ""
  const { resource } = block
  return Predicate.isObject(resource) && Predicate.isString(resource["text"]) ? resource["text"] : undefined
}

/** What came out of it: text where there's any, otherwise what the agent gives as it is. */
export const resultOf = (
  { fields: { content, rawOutput }, printed }: Call,
  outputOf: (terminal: string) => string | undefined
): Schema.Json => {
  const texts = (content ?? []).flatMap((piece) => {
    if (piece.type === "terminal") return outputOf(piece.terminalId ?? "") ?? printed.slice(-maxPrinted)
    const block = piece.type === "content" ? piece.content : undefined
    return isSet(block) ? textOf(block!) ?? [] : []
  })
  return texts.length > 0 ? texts.join("\n") : rawOutput ?? ""
}

/** The changes of files that it made. */
export const changesOf = (call: Call): ReadonlyArray<typeof Bridge.FileChange.Type> => {
  // What was proposed is whole; what is told afterwards may be the piece that was replaced.
  const diffs = call.proposed.length > 0
    ? call.proposed
    : (call.fields.content ?? []).filter(({ type }) => type === "diff")
  return diffs.flatMap(({ newText, oldText, path }) =>
    isSet(path) && isSet(newText) ? [fileChange(call.id, path!, oldText ?? undefined, newText!)] : []
  )
}

/** A change by what was before, if there was a file, and what is after it. */
export const fileChange = (
  toolCallId: string,
  path: string,
  before: string | undefined,
  after: string
): typeof Bridge.FileChange.Type => {
  const created = before === undefined || before === ""
  return {
    type: "file-change",
    path,
    kind: created ? "create" : "update",
    diff: unifiedDiff(path, created, hunksOf(before ?? "", after)),
    toolCallId
  }
}
