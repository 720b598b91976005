// The same request for a program. The key is read from the environment; the page knows none.
const PATH = "/v1";

export function curl(body) {
  const data = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${location.origin}${PATH}/chat/completions \\\n  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '${data}'`;
}

export function python(body) {
  return `import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(location.origin + PATH)}, api_key=os.environ["PENSTOCK_API_KEY"])\nbody = ${pythonLiteral(body)}\nfor chunk in client.chat.completions.create(**body):\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n`;
}

export function javascript(body) {
  return `import OpenAI from 'openai';\n\nconst client = new OpenAI({\n  baseURL: ${JSON.stringify(location.origin + PATH)},\n  apiKey: process.env.PENSTOCK_API_KEY,\n});\nconst stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});\nfor await (const chunk of stream) {\n  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}\n`;
}

// JSON's strings and numbers are Python's too.
function pythonLiteral(value, indent = "") {
  const deeper = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return wrapped("[", value.map((each) => pythonLiteral(each, deeper)), "]", indent, deeper);
  if (typeof value === "object") {
    const entries = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonLiteral(each, deeper)}`);
    return wrapped("{", entries, "}", indent, deeper);
  }
  return JSON.stringify(value);
}

function wrapped(opening, parts, closing, indent, deeper) {
  if (!parts.length) return opening + closing;
  return `${opening}\n${parts.map((part) => `${deeper}${part},\n`).join("")}${indent}${closing}`;
}
