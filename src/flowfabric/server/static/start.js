// Shows the document of this server. The token is kept in the page only, not in the browser.
window.onload = () => {
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#routes",
    deepLinking: true,
    validatorUrl: null,
    docExpansion: "none",
  });
};
