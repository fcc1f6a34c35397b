/**
 * Commands as Codex prints them: the shell that it starts, with the model's script as a quoted word.
 */

const prefix = /^\S*\/?(?:ba|z|da|k)?sh -l?c /

/**
 * The script in a command line of a shell, or the command line itself where it's another one.
 */
export const scriptOf = (command: string): string => {
  const [start] = prefix.exec(command) ?? []
  return (start === undefined ? undefined : unquote(command.slice(start.length))) ?? command
}

/** The script in a command's words. */
export const scriptOfWords = (words: ReadonlyArray<string>): string => {
  const [program = "", flag = "", script] = words
  return script !== undefined && words.length === 3 && prefix.test(`${program} ${flag} `) ? script : words.join(" ")
}

// The one word that a quoted text is; nothing where it's several, or none.
const unquote = (text: string): string | undefined => {
  let word = ""
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (char === "'") {
      const end = text.indexOf("'", at + 1)
      if (end < 0) return undefined
      word += text.slice(at + 1, end)
      at = end
    } else if (char === "\"") {
      for (at++; text[at] !== "\""; at++) {
        if (at >= text.length) return undefined
        if (text[at] === "\\" && "$`\"\\\n".includes(text[at + 1] ?? " ")) at++
        word += text[at]
      }
    } else if (char === "\\") {
      at++
      word += text[at] ?? ""
    } else if (/\s/.test(char)) return undefined
    else word += char
  }
  return word
}
