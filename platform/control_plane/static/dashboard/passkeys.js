// Passkeys: what only the browser can do of adding one and of signing in with one. Its answer goes
// into the form, which the server takes as any other.
const PROBLEMS = {
  NotAllowedError: "No passkey was used. Try again, or choose another way.",
  InvalidStateError: "This device keeps a passkey of your account already.",
  SecurityError: "Passkeys work at the service's own address only. Is this it?",
};

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-passkey]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("[type=submit]");
  const problem = form.querySelector("[data-problem]");
  button.disabled = true;
  problem.hidden = true;
  try {
    form.elements.credential.value = JSON.stringify(await answer(form));
    form.submit();
  } catch (error) {
    problem.textContent = PROBLEMS[error.name] ?? error.message;
    problem.hidden = false;
    button.disabled = false;
  }
});

async function answer(form) {
  if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
    throw new Error("Passkeys need https, and a browser of 2025 or later.");
  }
  const { publicKey } = form.dataset.options ? JSON.parse(form.dataset.options) : await asked(form.dataset.ask);
  const credential =
    form.dataset.passkey === "create"
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
  return credential.toJSON();
}

async function asked(address) {
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  if (response.status === 429) throw new Error("Too many attempts; try again in a minute.");
  if (!response.ok || response.redirected) throw new Error("Reload the page and try again.");
  return response.json();
}
