{{- define "shortlist.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "shortlist.secret" -}}
{{- .Values.existingSecret | default (include "shortlist.name" .) -}}
{{- end }}

{{- define "shortlist.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "shortlist.name" .) "" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "shortlist.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What selects the pods of a part. Takes (dict "root" $ "part" "web"). */}}
{{- define "shortlist.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "shortlist.labels" -}}
{{ include "shortlist.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* The pods of a part, but for its arguments, ports and probes. Takes the same, with "container", their YAML. */}}
{{- define "shortlist.pods" -}}
metadata:
  labels: {{- include "shortlist.labels" . | nindent 4 }}
  {{- if or .root.Values.podAnnotations (not .root.Values.existingSecret) }}
  annotations:
    {{- if not .root.Values.existingSecret }}
    checksum/addresses: {{ printf "%s %s" .root.Values.redisUrl .root.Values.milvusUri | sha256sum }}
    {{- end }}
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with include "shortlist.account" .root }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # Else Kubernetes sets SHORTLIST_PORT to the address of a service.
  enableServiceLinks: false
  securityContext:
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  terminationGracePeriodSeconds: 60
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "shortlist.selector" . | nindent 10 }}
  containers:
    - name: {{ .part }}
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- .container | nindent 6 }}
      resources: {{- toYaml (index .root.Values .part).resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
  volumes:
    # Graph files, which are a cache, and notes on the store.
    - {name: data, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    {{- with .root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if eq .part "web" }}
    - name: api-keys
      secret: {secretName: {{ include "shortlist.secret" .root }}, items: [{key: api-keys, path: api-keys}]}
    {{- end }}
{{- end }}

{{- define "shortlist.env" -}}
- name: SHORTLIST_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "shortlist.secret" . }}, key: redis-url}}
{{- if or .Values.milvusUri .Values.existingSecret }}
- name: SHORTLIST_MILVUS_URI
  valueFrom: {secretKeyRef: {name: {{ include "shortlist.secret" . }}, key: milvus-uri, optional: true}}
{{- end }}
{{- range $name, $value := omit .Values.settings "hosts" }}
- name: SHORTLIST_{{ upper $name }}
  {{- /* JSON writes 2000000 as it is, where a template writes 2e+06 */}}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- with .Values.settings.hosts }}
# Besides those of the values: probes and Prometheus ask by the address of the pod, others by the service.
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: SHORTLIST_HOSTS
  {{- $service := include "shortlist.name" $ }}
  {{- $name := printf "%s.%s" $service $.Release.Namespace }}
  value: {{ printf "%s $(POD_IP) %s %s %s.svc %s.svc.cluster.local" . $service $name $name $name | quote }}
{{- end }}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
