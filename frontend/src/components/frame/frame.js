/** The frame around every page: header, notices, messages, keyboard shortcuts and quick jump. */
import { html, useEffect, useState } from '../../dom.js';
import { startKeys, useKeys } from '../../app/keys.js';
import { loadRole, sayError, startStatus, startWorkers } from '../../app/state.js';
import { startLive } from '../../data/live.js';
import { KeyHelp, Toasts } from '../shared/overlay.js';
import { ConnectionNotice, ServiceNotice } from '../shared/states.js';
import { Header } from './header.js';
import { Jump } from './jump.js';

export function Frame() {
  const [openDialog, setOpenDialog] = useState(/** @type {'' | 'keys' | 'jump'} */ (''));
  useKeys({ '?': { label: 'keyboard shortcuts', run: () => setOpenDialog('keys') } });
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (!isJumpKey(event) || document.querySelector('dialog[open]')) return;
      event.preventDefault();
      setOpenDialog('jump');
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  const close = () => setOpenDialog('');
  return html`
    <${Header} onKeys=${() => setOpenDialog('keys')} onJump=${() => setOpenDialog('jump')} />
    <${ConnectionNotice} />
    <${ServiceNotice} />
    ${openDialog === 'keys' && html`<${KeyHelp} onClose=${close} />`}
    ${openDialog === 'jump' && html`<${Jump} onClose=${close} />`}
    <${Toasts} />
  `;
}

/** Returns whether the key is Ctrl-K, or Command-K on a Mac. @param {KeyboardEvent} event */
const isJumpKey = ({ key, ctrlKey, metaKey, altKey, shiftKey }) =>
  (ctrlKey || metaKey) && !altKey && !shiftKey && key.toLowerCase() === 'k';

/** Starts everything that the frame needs for the life of the page. */
export function startFrame() {
  startKeys();
  startLive();
  startWorkers();
  loadRole().catch(sayError);
  startStatus();
}
