/** Elements that depend on the role: an operator changes things, a viewer reads. */
import { html } from '../../dom.js';
import { mayChange } from '../../app/state.js';

/** Shown to operators only: buttons that the service would refuse a viewer. @param {{children: any}} props */
export const ForOperator = ({ children }) => (mayChange.value ? children : null);

/** Says to viewers that they are. */
export const ViewerMark = () =>
  mayChange.value
    ? null
    : html`<span class="tag" title="You are logged in as a viewer: you can see everything but change nothing">
      viewer
    </span>`;
