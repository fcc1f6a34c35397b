/**
 * Daytona's API documents, against which the loopback's answers are held. They aren't part of this repository: they're
 * looked for in `../shared/daytona` beside it, or where GANGWAY_DAYTONA_OPENAPI says.
 */
import { assert, describe, it } from "@effect/vitest"
import { Ajv, type ValidateFunction } from "ajv"
import { existsSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import type { Answer } from "./Answers.ts"
import type { DaytonaServer } from "./DaytonaServer.ts"
import { unavailable } from "./Processes.ts"

const directory = process.env.GANGWAY_DAYTONA_OPENAPI ?? resolve(import.meta.dirname, "../../../shared/daytona")

const files = { api: "api.openapi.json", toolbox: "toolbox.swagger.json" }

const missing = Object.values(files).every((file) => existsSync(join(directory, file)))
  ? undefined
  : `Daytona's API documents (${Object.values(files).join(", ")}) aren't in ../shared/daytona, and ` +
    "GANGWAY_DAYTONA_OPENAPI doesn't say where they are"

/** Adds the check of all that the server has answered by then: as the last of a file's. */
export const answersAreAsDocumented = (server: DaytonaServer) => {
  const reason = unavailable ?? missing
  describe(
    "the loopback Daytona",
    { skip: reason !== undefined, meta: { skipped: reason, isOptional: unavailable === undefined } },
    () => {
      it("answers as Daytona's API documents say", () => {
        const check = makeCheck()
        assert.isAbove(server.answers.filter(({ origin }) => origin !== "proxy").length, 20)
        assert.deepStrictEqual([...new Set(server.answers.flatMap(check))], [])
        // It does tell what's wrong.
        const wrong = check({ origin: "api", method: "GET", path: "/sandbox/1", status: 200, body: { id: 1 } })
        assert.include(wrong.join(), "must have required property 'toolboxProxyUrl'")
      })
    }
  )
}

/** Makes what says what's wrong with an answer. */
export const makeCheck = (): (answer: Answer) => ReadonlyArray<string> => {
  const checks = { api: makeDocument("api"), toolbox: makeDocument("toolbox") }
  // The proxy's own answers are in neither document.
  return (answer) => answer.origin === "proxy" ? [] : checks[answer.origin](answer)
}

const makeDocument = (origin: keyof typeof files) => {
  const document = JSON.parse(readFileSync(join(directory, files[origin]), "utf8"))
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true })
  ajv.addSchema(document, origin)
  const routes = Object.keys(document.paths).map((path) => ({
    path,
    pattern: new RegExp(`^${path.split(/\{[^}]+\}/).map(escape).join("[^/]+")}$`)
  })).sort((a, b) => a.path.split("{").length - b.path.split("{").length)
  const validators = new Map<string, ValidateFunction | undefined>()

  const validatorOf = (path: string, method: string, status: number) => {
    const pointer = ["paths", path, method, "responses", String(status)]
    const response = pointer.reduce((value, key) => value[key], document)
    const inner = response.schema !== undefined
      ? ["schema"]
      : response.content !== undefined
      ? ["content", "application/json", "schema"]
      : undefined
    if (inner === undefined) return undefined
    const $ref = `${origin}#/${[...pointer, ...inner].map(toPointer).join("/")}`
    return ajv.compile({ $ref })
  }

  return ({ body, method: upper, path, status }: Answer): ReadonlyArray<string> => {
    const method = upper.toLowerCase()
    const operation = `${upper} ${path}, ${status}`
    const route = routes.find(({ path: template, pattern }) =>
      pattern.test(path) && document.paths[template][method] !== undefined
    )
    if (route === undefined) return [`${operation}: there is no such operation`]
    const { produces, responses } = document.paths[route.path][method]
    // The API's document has no failures at all.
    if (responses[status] === undefined) {
      return origin === "api" && status >= 400 ? [] : [`${operation}: it has no such status`]
    }
    if (produces?.includes("multipart/form-data") === true && status === 200) return []
    const key = `${upper} ${route.path} ${status}`
    if (!validators.has(key)) validators.set(key, validatorOf(route.path, method, status))
    const validate = validators.get(key)
    if (validate === undefined) return body === undefined ? [] : [`${operation}: it has no body`]
    return validate(body) ? [] : [`${operation}: ${ajv.errorsText(validate.errors)}`]
  }
}

const escape = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")

const toPointer = (key: string) => encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"))
