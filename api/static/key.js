// The API key, where the service asks for one: kept for this tab only, gone when it closes.

const NAME = "hearline-api-key";

export function apiKey() {
  return sessionStorage.getItem(NAME) || "";
}

export function keepApiKey(key) {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
}

export function headers() {
  const key = apiKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}
