// Requests to the service this page came from. The token lives in this tab's session storage only.

const KEPT = "tessera-token";

export const token = () => sessionStorage.getItem(KEPT);

export function setToken(value) {
  if (value) sessionStorage.setItem(KEPT, value);
  else sessionStorage.removeItem(KEPT);
}

// What the service answered instead of what was asked for.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const response = await fetch(path, { cache: "no-store", ...options, headers });
  if (response.ok) return response;
  let error;
  try {
    ({ error } = await response.json());
  } catch {
    error = null; // not the service's own answer: a proxy's, perhaps
  }
  throw new Refused(response.status, error?.code ?? "http_error", error?.message ?? `the service answered ${response.status}`);
}

export const get = async (path) => (await request(path)).json();

export const post = async (path, body) =>
  (await request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();

// An error in words.
export const told = (error) => (error instanceof Refused ? error.message : "the service does not answer");
