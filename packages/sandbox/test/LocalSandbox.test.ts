import { LocalSandbox } from "@gangway/sandbox"
import { sandboxConformance } from "../../../test/conformance/sandbox.ts"

sandboxConformance({
  name: "LocalSandbox",
  module: "@gangway/sandbox/LocalSandbox",
  layer: LocalSandbox.layer
})
