/** The frame around a help page, which the service has rendered: status, theme and quick jump as on all pages. */
import { html, render } from './dom.js';
import { Frame, startFrame } from './components/frame/frame.js';

startFrame();
render(html`<${Frame} />`, /** @type {HTMLElement} */ (document.getElementById('frame')));
