/**
 * How a changeset stands in the changelogs: as it was written. All packages are released together, so it goes without
 * saying that they depend on each other's new versions.
 */
export default {
  getReleaseLine: async ({ summary }) => `- ${summary.trim().split("\n").join("\n  ")}`,
  getDependencyReleaseLine: async () => ""
}
