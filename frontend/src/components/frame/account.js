/** The account menu in the header: the role of this browser, and the list of sessions that can be ended. */
import { html, useState } from '../../dom.js';
import { remove } from '../../data/api.js';
import { formatAgo, formatTime } from '../../lib/text/format.js';
import { useGet } from '../../data/resource.js';
import { role, sayError, session } from '../../app/state.js';
import { Icon } from '../shared/icons.js';
import { Dialog, Menu } from '../shared/overlay.js';
import { Loaded } from '../shared/states.js';

const MEANING = { operator: 'Logged in as the operator', viewer: 'Logged in as a viewer' };

const goToLogin = () => location.assign('/login');

/** Ends the session on the service, because a copied cookie would otherwise remain valid. */
const logOut = () => remove('/session').then(goToLogin, sayError);

export function AccountMenu() {
  const [isListOpen, setIsListOpen] = useState(false);
  const title = MEANING[role.value];
  return html`
    <${Menu} label=${html`<${Icon} name="person" label="Account" />`} title=${title} align="right" quiet>
      ${(close) => html`
        <div class="menu-title">${title}</div>
        <button
          class="menu-item"
          onClick=${() => {
            close();
            setIsListOpen(true);
          }}
        >
          Manage sessions
        </button>
        ${
          session.value &&
          html`<button class="menu-item" onClick=${logOut}>
            Log out
          </button>`
        }
      `}
    <//>
    ${isListOpen && html`<${SessionList} onClose=${() => setIsListOpen(false)} />`}
  `;
}

/** @param {{onClose: () => void}} props */
function SessionList({ onClose }) {
  const sessions = useGet('/sessions');
  const end = (/** @type {Api.SessionItem} */ item) =>
    remove(`/sessions/${item.id}`).then(item.is_current ? goToLogin : sessions.reload, sayError);
  return html`<${Dialog} title="Sessions" onClose=${onClose}>
    <p class="session-note">
      ${
        role.value === 'operator'
          ? 'Browsers that are logged in. Changing the token ends every session created with the old one.'
          : 'Your session in this browser. Only an operator can see all sessions.'
      }
    </p>
    <${Loaded}
      resource=${sessions}
      isEmpty=${({ items }) => !items.length}
      empty=${html`<p>No active sessions.</p>`}
    >
      ${({ items }) => html`<ul class="sessions">
        ${items.map((item) => html`<${SessionItem} key=${item.id} item=${item} end=${() => end(item)} />`)}
      </ul>`}
    <//>
  <//>`;
}

/** @param {{item: Api.SessionItem, end: () => void}} props */
function SessionItem({ item, end }) {
  return html`<li>
    <div>
      <strong>${item.role}</strong>
      ${
        item.is_current &&
        html`
          ${' '}
          <span class="tag">this browser</span>
        `
      }
      <span class="session-agent" title=${item.user_agent}>
        ${item.user_agent || 'Unknown browser'}
      </span>
      <span class="session-times" title=${`Logged in ${formatTime(item.created_at)}`}>
        last active ${formatAgo(item.seen_at)}
      </span>
    </div>
    <button class="button" onClick=${end}>
      ${item.is_current ? 'Log out' : 'End session'}
    </button>
  </li>`;
}
