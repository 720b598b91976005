// Files in parts, with how far it is. The form itself takes a file too: this sends it before, and
// the form then names it. A part that was cut is sent again; choosing another file begins anew.
const TRIES = 5;
const PAUSE_MS = 1000;

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-uploads]");
  const file = form?.elements.file.files[0];
  if (!file) return;
  event.preventDefault();
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    form.elements.file_id.value = await sent(form, file);
    // Its bytes are there: the form goes without them.
    form.elements.file.disabled = true;
    form.submit();
  } catch (error) {
    show(form, 0, error.message);
    button.disabled = false;
  }
});

// A page that comes back from the browser's memory is as it was shown first.
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of document.querySelectorAll("form[data-uploads]")) {
    form.elements.file.disabled = false;
    form.querySelector("[type=submit]").disabled = false;
    form.querySelector("[data-upload-progress]").hidden = true;
  }
});

async function sent(form, file) {
  show(form, 0, `Uploading ${file.name}`);
  const upload = await begun(form, file);
  while (upload.at < file.size) {
    const part = file.slice(upload.at, upload.at + upload.part_bytes);
    const headers = { "Content-Type": "application/octet-stream" };
    const { id } = await answer(form, upload.parts, { body: part, headers });
    upload.ids.push(id);
    upload.at += part.size;
    const percent = Math.floor((upload.at * 100) / file.size);
    show(form, percent, `Uploading ${file.name}: ${percent} %`);
  }
  const ids = new URLSearchParams(upload.ids.map((id) => ["part", id]));
  const { file_id } = await answer(form, upload.complete, { body: ids });
  form.upload = undefined;
  return file_id;
}

// Goes on where the same file was cut.
async function begun(form, file) {
  if (form.upload?.file === file) return form.upload;
  const replaces = form.upload?.file_id ?? form.elements.file_id.value;
  const body = new URLSearchParams({ filename: file.name, bytes: file.size, replaces });
  form.upload = { file, at: 0, ids: [], ...(await answer(form, form.dataset.uploads, { body })) };
  return form.upload;
}

async function answer(form, address, options) {
  const token = form.elements.csrfmiddlewaretoken.value;
  const headers = { Accept: "application/json", "X-CSRFToken": token, ...options.headers };
  for (let left = TRIES; ; left -= 1) {
    const response = await fetch(address, { ...options, headers, method: "POST" }).catch(() => null);
    if (response?.ok && !response.redirected) return response.json();
    const may_help = !response || response.status >= 500 || response.status === 429;
    if (!may_help) form.upload = undefined;
    if (!may_help || left === 1) throw new Error(await problem(response));
    await new Promise((resume) => setTimeout(resume, PAUSE_MS));
  }
}

async function problem(response) {
  if (!response) return "No connection. What was sent is kept: try again to go on.";
  if (response.redirected) return "You are signed out. Reload the page and sign in.";
  const told = await response.json().catch(() => ({}));
  return told.message ?? `The server answered ${response.status}. Reload the page and try again.`;
}

function show(form, percent, text) {
  const box = form.querySelector("[data-upload-progress]");
  box.hidden = false;
  box.querySelector("progress").value = percent;
  box.querySelector("[data-upload-status]").textContent = text;
}
