/**
 * A container's options as the arguments of `docker create`.
 */
import type { CreateOptions, Mount } from "../DockerSandbox.ts"

/** What `docker create` is called with. */
export const createArguments = (options: CreateOptions): ReadonlyArray<string> => {
  const flag = (name: string, value: string | number | undefined) => value === undefined ? [] : [name, String(value)]
  const publish = options.network === "host" || options.network === "none" ? [] : options.ports ?? [4321]
  return [
    // Reaps what is left behind, and passes on the signal that stops it.
    "--init",
    ...Object.entries(options.labels ?? {}).flatMap(([name, value]) => ["--label", `${name}=${value}`]),
    ...flag("--name", options.name),
    ...flag("--memory", options.memory),
    ...flag("--cpus", options.cpus),
    ...flag("--pids-limit", options.pids),
    ...flag("--user", options.user),
    ...flag("--workdir", options.directory),
    ...flag("--network", options.network),
    ...Object.entries(options.env ?? {}).flatMap(([name, value]) => ["--env", `${name}=${value}`]),
    ...(options.mounts ?? []).flatMap((mount) => ["--mount", mountArgument(mount)]),
    ...publish.flatMap((port) => ["--publish", `${publishAddress(options)}::${port}`]),
    // A shell that waits, rather than the image's program.
    "--entrypoint",
    "sh",
    options.image,
    "-c",
    "while :; do sleep 86400; done"
  ]
}

const publishAddress = ({ publishAddress = "127.0.0.1" }: CreateOptions) =>
  publishAddress.includes(":") ? `[${publishAddress}]` : publishAddress

// It's read as a line of comma-separated values.
const mountArgument = ({ readOnly, source, target }: Mount) =>
  [
    `type=${source.startsWith("/") ? "bind" : "volume"}`,
    `source=${source}`,
    `target=${target}`,
    ...(readOnly === true ? ["readonly"] : [])
  ].map((field) => /[",]/.test(field) ? `"${field.replaceAll("\"", "\"\"")}"` : field).join(",")
