{{- define "petctl.name" -}}
petctl-operator
{{- end }}

{{- define "petctl.rights" -}}
{{- if eq .Release.Namespace (.Values.watchNamespace | default "petctl-system") -}}
{{ include "petctl.name" . }}
{{- else -}}
{{ include "petctl.name" . }}.{{ .Release.Namespace }}
{{- end -}}
{{- end }}

{{- define "petctl.selector" -}}
app.kubernetes.io/name: petctl-operator
{{- end }}

{{- define "petctl.labels" -}}
{{ include "petctl.selector" . }}
app.kubernetes.io/part-of: petctl
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "petctl.archive" -}}
{{ .Files.Get "files/petctl-operator.pyz" | required "this is the chart's source: `make chart` builds build/charts/petctl-operator-VERSION.tgz" }}
{{- end }}
