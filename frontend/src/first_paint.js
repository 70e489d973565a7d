// a classic script that runs before the first paint, so that no other theme flashes
{
  const storedTheme = localStorage.getItem('grpolab.theme');
  if (storedTheme === 'light' || storedTheme === 'dark') document.documentElement.dataset.theme = storedTheme;
}
