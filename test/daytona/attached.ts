/**
 * The loopback sandbox that a test has made, for another process of its: the variable says which.
 */
import { DaytonaSandbox } from "@gangway/sandbox"
import { Layer, Redacted } from "effect"

export const variable = "GANGWAY_TEST_DAYTONA"

const { apiKey, apiUrl, sandbox } = JSON.parse(process.env[variable] ?? "{}")

export const layer = Layer.orDie(DaytonaSandbox.layerAttach({ apiKey: Redacted.make(apiKey), apiUrl, sandbox }))
