// What the form asks of a model. What is wrong is said beside its field, and nothing is sent.
const NUMBERS = { temperature: [0, 2], top_p: [0, 1], max_tokens: [1, 1_000_000], seed: [0, 2 ** 53 - 1] };
const WHOLE = new Set(["max_tokens", "seed"]);

// Returns the fields of a request but model and messages, null where a field is wrong.
export function read(form) {
  const found = {};
  const wrong = new Map();
  for (const [name, [least, most]] of Object.entries(NUMBERS)) {
    const text = form.elements[name].value.trim();
    if (!text) continue;
    const number = Number(text);
    const fits = number >= least && number <= most && (!WHOLE.has(name) || Number.isInteger(number));
    if (fits) found[name] = number;
    else wrong.set(name, `${WHOLE.has(name) ? "A whole number" : "A number"} from ${least} to ${most.toLocaleString("en")}.`);
  }
  const tools = json(form, "tools", wrong);
  if (tools !== undefined) {
    if (Array.isArray(tools)) found.tools = tools;
    else wrong.set("tools", "A list of tools: [{\"type\": \"function\", \"function\": {...}}].");
  }
  const schema = json(form, "json_schema", wrong);
  if (schema !== undefined) {
    const isSchema = typeof schema === "object" && schema !== null && !Array.isArray(schema);
    if (isSchema) found.response_format = { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
    else wrong.set("json_schema", "A JSON schema is an object.");
  }
  for (const name of [...Object.keys(NUMBERS), "tools", "json_schema"]) mark(form.elements[name], wrong.get(name));
  const [first] = wrong.keys();
  if (first) {
    form.elements[first].closest("details")?.setAttribute("open", "");
    form.elements[first].focus();
  }
  return first ? null : found;
}

function json(form, name, wrong) {
  const text = form.elements[name].value.trim();
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    wrong.set(name, `This is no JSON: ${error.message}.`);
    return undefined;
  }
}

export function mark(input, problem) {
  const id = `${input.id}_error`;
  const described = (input.getAttribute("aria-describedby") ?? "").split(" ").filter((each) => each && each !== id);
  if (problem) described.push(id);
  document.getElementById(id)?.remove();
  input.ariaInvalid = problem ? "true" : null;
  if (described.length) input.setAttribute("aria-describedby", described.join(" "));
  else input.removeAttribute("aria-describedby");
  if (!problem) return;
  const told = document.createElement("p");
  told.className = "field-error";
  told.id = id;
  told.textContent = problem;
  input.after(told);
}
