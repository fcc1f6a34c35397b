/**
 * The container that the environment names as a sandbox, for a process of its own.
 */
import { DockerSandbox } from "@gangway/sandbox"

const { client, container } = JSON.parse(process.env["GANGWAY_TEST_CONTAINER"]!)

export const layer = DockerSandbox.layerAttach({ client, container })
