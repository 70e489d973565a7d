/** The header: pages, quick jump, workers, theme, keyboard shortcuts and account. */
import { html } from '../../dom.js';
import { findMarkedPage, menu } from '../../app/pages.js';
import { currentAddress } from '../../app/router.js';
import { connection } from '../../data/live.js';
import { themeChoice, workers } from '../../app/state.js';
import { summarise } from '../../lib/service/workers.js';
import { AccountMenu } from './account.js';
import { Icon, IconButton } from '../shared/icons.js';
import { ViewerMark } from '../shared/role.js';

/** @type {Record<string, 'auto' | 'light' | 'dark'>} */
const NEXT_THEME = { auto: 'light', light: 'dark', dark: 'auto' };
const JUMP_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? '⌘ K' : 'Ctrl K';
const THEME_TITLE = { auto: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' };

/** @param {{onKeys: () => void, onJump: () => void}} props */
export function Header({ onKeys, onJump }) {
  const { path } = currentAddress.value;
  const markedHref = findMarkedPage(path);
  return html`<header class="header">
    <a class="brand" href="/runs" aria-label="GRPO Lab">
      <img src="/static/favicon.svg" alt="" width="20" height="20" />
      <span>GRPO Lab</span>
    </a>
    <nav aria-label="Pages">
      ${menu.map(
        ({
          path: href,
          label,
        }) => html`<a key=${href} href=${href} aria-current=${markedHref === href ? 'page' : undefined}>
          ${label}
        </a>`,
      )}
      <a href="/help" aria-current=${isHelp(path) ? 'page' : undefined}>Help</a>
    </nav>
    <span class="spacer"></span>
    <button
      class="jump-button"
      title=${`Jump to a run, experiment, metric, setting or help (${JUMP_KEYS})`}
      aria-label="Jump to"
      aria-haspopup="dialog"
      onClick=${onJump}
    >
      <${Icon} name="search" />
      <span>Jump to</span>
      <kbd>${JUMP_KEYS}</kbd>
    </button>
    <${ViewerMark} />
    <${WorkerStatus} />
    <button
      class="button-icon keys"
      title="Keyboard shortcuts (?)"
      aria-label="Keyboard shortcuts"
      onClick=${onKeys}
    >
      <kbd>?</kbd>
    </button>
    <${ThemeToggle} />
    <${AccountMenu} />
  </header>`;
}

const isHelp = (/** @type {string} */ path) => path === '/help' || path.startsWith('/help/');

function ThemeToggle() {
  const choice = themeChoice.value;
  return html`<${IconButton}
    icon=${choice}
    label=${THEME_TITLE[choice]}
    title=${THEME_TITLE[choice]}
    onClick=${() => {
      themeChoice.value = NEXT_THEME[choice];
    }}
  />`;
}

function WorkerStatus() {
  const { items, error, loaded } = workers.value;
  const { tone, text } = summarise({ items, error, loaded });
  const live = connection.value.state;
  return html`<a class="worker-status" href="/queue" title=${live === 'live' ? 'Live' : `Live connection: ${live}`}>
    <span class=${`lamp lamp-${tone}`}></span>
    <span>${text}</span>
  </a>`;
}
