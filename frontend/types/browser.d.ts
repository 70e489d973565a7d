/** Parts of browsers that TypeScript's own declarations do not have yet. */
interface TrustedTypePolicyOptions {
  createScriptURL?(address: string): string;
  createHTML?(text: string): string | null;
}

interface TrustedTypePolicy {
  createScriptURL(address: string): string;
  createHTML(text: string): string;
}

declare var trustedTypes:
  | { createPolicy(name: string, options: TrustedTypePolicyOptions): TrustedTypePolicy }
  | undefined;

interface Window {
  scheduler?: { yield?(): Promise<void> };
}
